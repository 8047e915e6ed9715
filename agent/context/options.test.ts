import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { printConfig } from "../../shared/config/flags.ts";
import { readOptions } from "../../shared/config/read-options.ts";
import { agentOptions } from "./options.ts";

const dir = mkdtempSync(join(tmpdir(), "culvert-agent-options-"));
after(() => rmSync(dir, { recursive: true, force: true }));
const pem = join(dir, "some.pem");
writeFileSync(pem, "");

const read = (argv: string[], env: NodeJS.ProcessEnv = {}) => readOptions(agentOptions, { argv, env });
const tls = [`--agent-cert=${pem}`, `--agent-key=${pem}`];
const url = "--server=wss://culvert.example.com";

test("a server and a certificate are enough, by URL or by Konnectivity's host and port", async () => {
  for (const server of [
    [url],
    ["--proxy-server-host=10.0.0.1"],
    ["--proxy-server-host=::1", "--proxy-server-port=443"],
  ]) {
    const { problems, warnings, values } = await read([...server, ...tls]);
    assert.deepEqual([problems, warnings], [[], []]);
    assert.match(values.agentId, /-[0-9a-f]{8}$/);
  }
  const { values } = await read(["--proxy-server-host=[::1]", ...tls], { PROXY_AGENT_ID: "node-7" });
  assert.deepEqual([values.proxyServerHost, values.proxyServerPort, values.agentId], ["::1", 8091, "node-7"]);
  assert.deepEqual(
    [values.healthServerPort, values.adminServerPort, values.adminBindAddress],
    [8093, 8094, "127.0.0.1"],
  );
});

test("a token file is enough in place of a certificate, or comes with one; as Konnectivity's flag, empty is none", async () => {
  const token = `--service-account-token-path=${pem}`;
  for (const more of [[], tls]) {
    const { problems, warnings, values } = await read([url, token, ...more]);
    assert.deepEqual([problems, warnings, values.serviceAccountTokenPath], [[], [], pem]);
  }
  const { problems } = await read([url, "--service-account-token-path="]);
  assert.deepEqual(problems, [
    "The server must know its agents: give --agent-cert and --agent-key, or --service-account-token-path.",
  ]);
  const missing = await read([url, "--service-account-token-path=/nowhere/token"]);
  assert.match(missing.problems.join("\n"), /--service-account-token-path.*\/nowhere\/token/);
});

test("what --print-config prints can be given as --config", async () => {
  for (const server of [url, "--proxy-server-host=10.0.0.1"]) {
    const { values, sources } = await read([server, ...tls]);
    const file = join(dir, "printed.yaml");
    writeFileSync(file, printConfig(agentOptions, values, sources));
    const again = await read([`--config=${file}`]);
    assert.deepEqual([again.problems, again.warnings, again.values], [[], [], values]);
  }
});

test("everything that is missing is reported in one go", async () => {
  const { problems } = await read([]);
  assert.match(problems.join("\n"), /Which server\?[\s\S]*--agent-cert and --agent-key/);
  assert.equal(problems.length, 2);
});

test("a URL beside a host or a port, a URL that is no wss and a half pair are refused", async () => {
  const cases: [string[], RegExp][] = [
    [[url, "--proxy-server-host=x"], /--server and --proxy-server-host cannot be given together/],
    [[url, "--proxy-server-port=1"], /put the port in the URL/],
    [["--server=ws://x"], /--server must be wss:\/\/: tunnels are always inside TLS/],
    [["--proxy-server-host=x", "--proxy-server-port=0"], /must not be 0/],
    [[url, "--server-address=a:b:c"], /--server-address needs HOST or HOST:PORT/],
    [[url, "--allow-target=10.0.0.0/8:443,10.0.0.0/99"], /--allow-target "10\.0\.0\.0\/99"/],
    [[url, "--deny-target=a:99999"], /--deny-target "a:99999"/],
    [[url, "--alpn-proto=konnectivity"], /offers http\/1\.1 alone/],
    [[url, "--sync-interval=1m"], /--sync-interval must not be longer/],
    [[url, "--health-server-port=8094", "--health-server-host=127.0.0.1"], /are both 8094/],
  ];
  for (const [flags, pattern] of cases) assert.match((await read([...flags, ...tls])).problems.join("\n"), pattern);
  const half = await read([url, `--agent-cert=${pem}`]);
  assert.deepEqual(half.problems, ["--agent-cert needs its private key: give --agent-key too."]);
});

test("several servers come as flags, in one variable or as a YAML list", async () => {
  const both = ["wss://a.example", "wss://b.example:8091/t"];
  const yaml = join(dir, "agent.yaml");
  writeFileSync(yaml, `server:\n${both.map((one) => `  - ${one}\n`).join("")}`);
  for (const [argv, env] of [
    [both.map((one) => `--server=${one}`), {}],
    [[], { CULVERT_AGENT_SERVER: both.join(",") }],
    [[`--config=${yaml}`], {}],
  ] as const) {
    const { problems, values } = await read([...argv, ...tls], env);
    assert.deepEqual([problems, values.server, values.readiness], [[], both, "any"]);
  }
  const { problems } = await read([url, "--readiness=most", ...tls]);
  assert.deepEqual(problems, ['--readiness needs one of any, quorum, all, not "most".']);
});

test("a server named twice, a fault in one of several, and one address for several are reported at the start", async () => {
  const cases: [string[], string][] = [
    [
      ["--server=wss://a", "--server=wss://A:443"],
      "--server names wss://a:443/culvert/v1/tunnel twice; an agent has one tunnel to each server.",
    ],
    [
      ["--server=wss://a,http://b"],
      "--server (number 2) must be wss://: tunnels are always inside TLS (wss://culvert.example.com:443).",
    ],
    [
      ["--server=wss://a,wss://b", "--server-address=10.0.0.1"],
      "--server-address is dialled in place of one server; with several, each is dialled by its name.",
    ],
  ];
  for (const [flags, sentence] of cases) assert.deepEqual((await read([...flags, ...tls])).problems, [sentence]);
});

test("the manifest of a Konnectivity agent with certificates starts with one warning line", async () => {
  const { problems, warnings, values } = await read([
    "--logtostderr=true",
    `--ca-cert=${pem}`,
    ...tls,
    "--proxy-server-host=konnectivity.example.com",
    "--proxy-server-port=8132",
    "--admin-server-port=8133",
    "--health-server-port=8134",
    "--sync-interval=5s",
    "--sync-interval-cap=30s",
    "--sync-forever",
    "--probe-interval=5s",
    "--keepalive-time=30s",
    "--agent-identifiers=",
    "--service-account-token-path=",
    "--v=3",
  ]);
  assert.deepEqual(problems, []);
  assert.deepEqual(warnings, [
    "Accepted without effect: --logtostderr, --v (klog's: use --log-level and --log-format); " +
      "--sync-forever (an agent never stops looking for servers); --probe-interval (a lost tunnel is noticed by --keepalive).",
  ]);
  assert.deepEqual([values.syncIntervalMs, values.keepaliveMs], [5_000, 30_000]);
});

test("flags of leases change nothing and are accepted with the reason", async () => {
  for (const flag of ["--agent-identifiers=", "--count-server-leases=false", "--kubeconfig=", "--alpn-proto="]) {
    const { problems, warnings } = await read([url, ...tls, flag]);
    assert.deepEqual([problems, warnings], [[], []], flag);
  }
  for (const [flag, reason] of [
    ["--count-server-leases", /--count-server-leases \(servers say how many they are, and agents count no leases\)/],
    ["--kubeconfig=/etc/agent.kubeconfig", /--kubeconfig \(servers say how many/],
    ["--server-count-source=max", /--server-count-source \(servers say how many/],
  ] as const) {
    const { problems, warnings } = await read([url, ...tls, flag]);
    assert.deepEqual([problems, warnings.length], [[], 1], flag);
    assert.match(warnings[0] ?? "", reason);
  }
});

test("identifiers are taken in Konnectivity's form, several times, and refused with a sentence at the start", async () => {
  const taken = await read([
    url,
    ...tls,
    "--agent-identifiers=ipv4=1.2.3.4&host=a",
    "--agent-identifiers=cidr=10.0.0.0/8",
  ]);
  assert.deepEqual([taken.problems, taken.warnings], [[], []]);
  assert.deepEqual(parseIdentifiers(taken.values.agentIdentifiers), {
    ipv4: ["1.2.3.4"],
    host: ["a"],
    cidr: ["10.0.0.0/8"],
  });
  const { problems } = await read([url, ...tls, "--agent-identifiers=ipv4=node-1"]);
  assert.deepEqual(problems, ['--agent-identifiers: ipv4="node-1" is not an IP address (write a name as host=).']);
});

test("--max-carrier-age is off, or long enough for a handshake: the refusal says so", async () => {
  const age = async (text: string) => await read([url, ...tls, `--max-carrier-age=${text}`]);
  for (const [text, ms] of [
    ["0", 0],
    ["1s", 1_000],
    ["1h", 3_600_000],
  ] as const) {
    const { problems, values } = await age(text);
    assert.deepEqual([problems, values.maxCarrierAgeMs], [[], ms]);
  }
  for (const text of ["1ms", "999ms"]) {
    assert.deepEqual((await age(text)).problems, [`--max-carrier-age needs 0, or at least 1s, not "${text}".`]);
  }
});

test("the node's way to its control plane needs an address and targets, each port once", async () => {
  const options = async (...argv: string[]) => await read([url, ...tls, ...argv]);
  const { problems, values } = await options(
    "--bind-address=100.64.30.10",
    "--target=443:KAS.blue.svc:6443",
    "--target=8443:[fd00::1]:443",
    "--bind-allow-source=10.42.0.0/24",
    "--interface=lo",
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(values.target, ["443:KAS.blue.svc:6443", "8443:[fd00::1]:443"]);
  for (const [argv, fault] of [
    [["--bind-address=100.64.30.10"], /belong together/],
    [["--target=443:kas:443"], /belong together/],
    [["--bind-address=node", "--target=443:kas:443"], /needs an IP address/],
    [["--bind-address=100.64.30.10", "--target=443:a:1,443:b:2"], /port 443 twice/],
    [["--bind-address=100.64.30.10", "--target=kas:443"], /is no PORT:HOST:PORT/],
    [["--bind-address=100.64.30.10", "--target=443:kas"], /has no port/],
    [["--bind-address=100.64.30.10", "--target=70000:kas:1"], /is no PORT:HOST:PORT/],
    [["--bind-address=::1", "--target=1:kas:1", "--bind-allow-source=pods"], /not an IP address/],
    [["--bind-address=::1", "--target=1:kas:1", "--interface=eth0"], /none, lo/],
  ] as const) {
    assert.match((await options(...argv)).problems.join("\n"), fault, argv.join(" "));
  }
});
