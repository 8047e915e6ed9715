import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { readOptions } from "../shared/config/read-options.ts";
import { folderOf } from "../shared/documents/testing/files.ts";
import { httpProxyOptions, socks5ProxyOptions } from "./options.ts";

/** A folder with the files that HyperShift mounts. */
function filesOf(t: TestContext): string {
  const folder = folderOf(t);
  for (const name of ["ca", "cert", "key", "kubeconfig"]) writeFileSync(join(folder, name), "");
  return folder;
}

/** HyperShift mounts the files at the defaults of these flags. */
function mounted(folder: string): string[] {
  return [`--ca-cert-path=${folder}/ca`, "--tls-cert-path", `${folder}/cert`, `--tls-key-path=${folder}/key`];
}

test("the arguments of HyperShift's SOCKS5 sidecars are options, and nothing is left out", async (t) => {
  const folder = filesOf(t);
  const env = { KUBECONFIG: `${folder}/kubeconfig` };
  for (const [args, wanted] of [
    [[], { server: ["konnectivity-server-local:8090"], port: 8090, bindAddress: "127.0.0.1" }],
    [
      ["--konnectivity-hostname=konnectivity.example", "--konnectivity-port", "8443", "--serving-port=8091"],
      { server: ["konnectivity.example:8443"], port: 8091 },
    ],
    [
      ["--connect-directly-to-cloud-apis=true", "--resolve-from-guest-cluster-dns=true", "--prefer-ipv4"],
      { connectDirectlyToCloudApis: true, resolveFromGuestClusterDns: true, preferIpv4: true, directFallback: false },
    ],
    [
      ["--resolve-from-guest-cluster-dns=true", "--resolve-from-management-cluster-dns=true"],
      { resolveFromGuestClusterDns: true, resolveFromManagementClusterDns: true, directFallback: true },
    ],
    [["--disable-resolver=true", "--resolve-from-guest-cluster-dns=false"], { disableResolver: true }],
  ] as const) {
    const read = await readOptions(socks5ProxyOptions, { argv: [...mounted(folder), ...args], env });
    assert.deepEqual([read.problems, read.warnings], [[], []]);
    assert.deepEqual(read.values, { ...read.values, ...wanted, kubeconfig: env.KUBECONFIG });
  }
});

test("the arguments of HyperShift's HTTPS sidecars are options, also where its proxies are empty", async (t) => {
  const folder = filesOf(t);
  const env = { KUBECONFIG: `${folder}/kubeconfig` };
  for (const [args, wanted] of [
    [["--http-proxy", "", "--https-proxy", "", "--no-proxy", ""], { httpProxy: "", httpsProxy: "", noProxy: "" }],
    [
      ["--http-proxy", "http://u:p@squid:3128", "--https-proxy=https://squid:3129", "--no-proxy", ".svc,10.0.0.0/8"],
      { httpProxy: "http://u:p@squid:3128", httpsProxy: "https://squid:3129", noProxy: ".svc,10.0.0.0/8" },
    ],
    [["--serving-port=8092", "--connect-directly-to-cloud-apis=false"], { port: 8092 }],
  ] as const) {
    const read = await readOptions(httpProxyOptions, { argv: [...mounted(folder), ...args], env });
    assert.deepEqual([read.problems, read.warnings], [[], []]);
    assert.deepEqual(read.values, { ...read.values, ...wanted, resolveFromGuestClusterDns: true });
  }
});

test("options that cannot work together are refused with a sentence", async (t) => {
  const folder = filesOf(t);
  for (const [args, problem] of [
    [["--port=0"], /--port or --uds-name/],
    [["--server=a:1", "--konnectivity-hostname=b"], /both name servers/],
    [["--server=a"], /^--server needs host:port, .* culvert-server:8090, and not "a"\.$/],
    [["--resolve-from-guest-cluster-dns"], /needs --kubeconfig/],
    [["--cluster-dns=10.96.0.10"], /--cluster-dns needs host:port/],
  ] as const) {
    const { problems } = await readOptions(socks5ProxyOptions, { argv: [...mounted(folder), ...args], env: {} });
    assert.match(problems.join(" "), problem);
  }
  const socks = ["--http-proxy=socks5://squid:1080"];
  const { problems } = await readOptions(httpProxyOptions, { argv: [...mounted(folder), ...socks], env: {} });
  assert.match(problems.join(" "), /--http-proxy must begin with http/);
});
