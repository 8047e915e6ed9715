import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { NAMES } from "./harness/addresses.ts";
import { failureOf } from "./harness/agent-log.ts";
import { Company } from "./harness/company.ts";
import { missing } from "./harness/missing.ts";
import { Squid } from "./harness/squid.ts";
import { outlives } from "./harness/survival.ts";

describe("an https:// proxy", { skip: missing("squid") }, () => {
  let company: Company;
  let proxyPair: CertificateAndKey;
  let trusted: string;

  before(async () => {
    company = await Company.create();
    const { serverAuthority, files } = company.pki;
    // A CA of the company's own, which knows nothing of the server's.
    proxyPair = await serverAuthority.issue({ cn: "proxy", names: [NAMES.proxy], usage: "server" });
    trusted = `--proxy-ca=${files["server-ca.crt"]}`;
  });
  after(() => company?.[Symbol.asyncDispose]());

  test("carries an agent's traffic, with TLS to the server inside, and nothing bypasses it", async () => {
    await using squid = await Squid.start(company.network, { tls: proxyPair });
    await using agent = await company.connectAgent([`--proxy=${squid.url}`, trusted]);
    await company.traffic.transfer();
    await agent.stop();
    await squid.waitForRequest({ status: 200, target: `${NAMES.server}:443` });
    assert.equal(await company.network.triedToPass(), 0);
  });

  test("is not trusted without its CA, and the agent says what to give", async () => {
    await using squid = await Squid.start(company.network, { tls: proxyPair });
    await using agent = company.startAgent([`--proxy=${squid.url}`]);
    assert.match((await failureOf(agent)).reason, new RegExp(`${squid.url} .*--proxy-ca`));
  });

  test("is not trusted under another name than its own", async () => {
    const { serverAuthority } = company.pki;
    const other = await serverAuthority.issue({ cn: "other", names: ["other.corp.example"], usage: "server" });
    await using squid = await Squid.start(company.network, { tls: other });
    await using agent = company.startAgent([`--proxy=${squid.url}`, trusted]);
    assert.match((await failureOf(agent)).reason, new RegExp(`${squid.url} .*other\\.corp\\.example`));
  });

  test("wants a certificate of its clients", async () => {
    const { files, clusterAuthority } = company.pki;
    await using squid = await Squid.start(company.network, { tls: { ...proxyPair, clientCa: clusterAuthority.cert } });
    const pair = [`--proxy-cert=${files["agent.crt"]}`, `--proxy-key=${files["agent.key"]}`];
    await using without = company.startAgent([`--proxy=${squid.url}`, trusted]);
    assert.match((await failureOf(without)).reason, new RegExp(`${squid.url} `));
    await using _agent = await company.connectAgent([`--proxy=${squid.url}`, trusted, ...pair]);
    await company.traffic.transfer();
  });

  test("is killed and started again, and no stream ends", async () => {
    await using squid = await Squid.start(company.network, { tls: proxyPair });
    await using agent = await company.connectAgent([`--proxy=${squid.url}`, trusted]);
    await outlives(company, agent, () => squid.restart());
  });
});
