import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Finished } from "../kubernetes/world/run.ts";
import { NAMES, SERVER } from "./harness/addresses.ts";
import { Company } from "./harness/company.ts";
import { Realm } from "./harness/kerberos.ts";
import { Microsocks } from "./harness/microsocks.ts";
import { missing } from "./harness/missing.ts";
import { Mitmproxy } from "./harness/mitmproxy.ts";
import { Squid } from "./harness/squid.ts";

const ALICE = { user: "alice", password: "wonderland" } as const;
const AS_ALICE = ["--proxy-user", `${ALICE.user}:${ALICE.password}`];

describe("the proxies of these tests, with curl in the agent's place", { skip: missing("squid", "microsocks") }, () => {
  let company: Company;

  before(async () => {
    company = await Company.create();
  });
  after(() => company?.[Symbol.asyncDispose]());

  /** Requests a path that culvert's server does not have; the answer is its own. */
  async function curl(...options: string[]): Promise<Finished> {
    const ca = ["--cacert", company.pki.files["cluster-ca.crt"]];
    const pair = ["--cert", company.pki.files["agent.crt"], "--key", company.pki.files["agent.key"]];
    const out = ["-s", "-S", "-o", "/dev/null", "-w", "%{http_connect} %{http_code}\n", "-m", "10"];
    return await company.network.inside.run(["curl", ...out, ...ca, ...pair, ...options, `https://${NAMES.server}/`]);
  }

  async function comesThrough(...options: string[]): Promise<void> {
    const { stdout, stderr } = await curl(...options);
    assert.match(stdout, /404\n$/, stderr);
  }

  test("nothing bypasses them, and attempts are counted", async () => {
    const before = await company.network.triedToPass();
    const { code } = await curl("--connect-timeout", "1", "--resolve", `${NAMES.server}:443:${SERVER}`);
    assert.equal(code, 28);
    assert.ok((await company.network.triedToPass()) > before);
  });

  test("squid", async () => {
    await using squid = await Squid.start(company.network);
    await comesThrough("-x", squid.url);
    await squid.waitForRequest({ status: 200, user: "-", method: "CONNECT", target: `${NAMES.server}:443` });
    await squid.restart();
    await comesThrough("-x", squid.url);
  });

  for (const scheme of ["basic", "digest"] as const) {
    test(`squid with ${scheme}, and another password later`, async () => {
      await using squid = await Squid.start(company.network, { auth: [{ scheme, ...ALICE }] });
      const here = ["-x", squid.url, `--proxy-${scheme}`];
      await comesThrough(...here, ...AS_ALICE);
      const { scheme: used } = await squid.waitForRequest({ status: 200, user: "alice" });
      assert.equal(used.toLowerCase(), scheme);
      assert.match((await curl(...here, "--proxy-user", "alice:wrong")).stdout, /^407 /);
      await squid.restart({ scheme, user: "alice", password: "looking-glass" });
      assert.match((await curl(...here, ...AS_ALICE)).stdout, /^407 /);
      await comesThrough(...here, "--proxy-user", "alice:looking-glass");
    });
  }

  test("squid over TLS, for whoever has a certificate", async () => {
    const { serverAuthority, clusterAuthority, files } = company.pki;
    const leaf = await serverAuthority.issue({ cn: "proxy", names: [NAMES.proxy], usage: "server" });
    await using squid = await Squid.start(company.network, { tls: { ...leaf, clientCa: clusterAuthority.cert } });
    const here = ["-x", squid.url, "--proxy-cacert", files["server-ca.crt"]];
    assert.notEqual((await curl(...here)).code, 0);
    await comesThrough(...here, "--proxy-cert", files["agent.crt"], "--proxy-key", files["agent.key"]);
  });

  test("microsocks, with names resolved there", async () => {
    await using open = await Microsocks.start(company.network);
    await comesThrough("-x", `socks5h://${open.address}`);
    assert.equal((await curl("-x", `socks5://${open.address}`)).code, 97, "this name is not known inside");
    await open.restart();
    await comesThrough("-x", `socks5h://${open.address}`);
  });

  test("microsocks with a password", async () => {
    await using known = await Microsocks.start(company.network, ALICE);
    assert.equal((await curl("-x", `socks5h://${known.address}`)).code, 97);
    await comesThrough("-x", `socks5h://${known.address}`, ...AS_ALICE);
  });

  test("squid with Kerberos", { skip: missing("krb5kdc", "kadmin.local", "kinit") }, async () => {
    await using realm = await Realm.start(company.network);
    await using squid = await Squid.start(company.network, { auth: [realm.auth] });
    const here = ["-x", squid.url, "--proxy-negotiate", "--proxy-user", ":"];
    const negotiate = (env: Readonly<Record<string, string>>) =>
      company.network.inside.run(
        ["curl", "-s", "-k", "-o", "/dev/null", "-w", "%{http_connect}", ...here, `https://${NAMES.server}/`],
        { env },
      );
    assert.equal((await negotiate(realm.env)).stdout, "407");
    assert.equal((await negotiate(await realm.login())).stdout, "200");
    await squid.waitForRequest({ status: 200, user: realm.user, scheme: "Negotiate" });
  });

  test("mitmproxy, which reads the traffic", { skip: missing("mitmdump") }, async () => {
    await using proxy = await Mitmproxy.start(company.network, { upstreamCa: company.pki.files["cluster-ca.crt"] });
    assert.equal((await curl("-x", proxy.url)).code, 60, "its CA is not trusted");
    const trusting = ["-x", proxy.url, "--cacert", proxy.caFile, "-H", "X-Marker: read-in-the-middle"];
    assert.equal(
      (await curl(...trusting)).stdout,
      "200 404\n",
      "where inner TLS is allowed, nobody needs a certificate to ask",
    );
    assert.ok((await proxy.flows()).includes("read-in-the-middle"));
  });

  test("a transfer and a conversation fail without an agent", async () => {
    await assert.rejects(company.traffic.transfer(), /no agent/);
  });
});
