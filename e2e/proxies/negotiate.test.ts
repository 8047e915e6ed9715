import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { NAMES } from "./harness/addresses.ts";
import { failureOf } from "./harness/agent-log.ts";
import { Company } from "./harness/company.ts";
import { Realm } from "./harness/kerberos.ts";
import { missing, missingPackage } from "./harness/missing.ts";
import { Squid } from "./harness/squid.ts";
import { outlives } from "./harness/survival.ts";

const WHY = missing("squid", "krb5kdc", "kadmin.local", "kinit") || missingPackage("kerberos");

describe("squid that wants a Kerberos ticket (Negotiate)", { skip: WHY }, () => {
  let company: Company;
  let realm: Realm;

  before(async () => {
    company = await Company.create();
    realm = await Realm.start(company.network);
  });
  after(async () => {
    await realm?.[Symbol.asyncDispose]();
    await company?.[Symbol.asyncDispose]();
  });

  test("accepts a user who has logged in, and nothing bypasses it", async () => {
    await using squid = await Squid.start(company.network, { auth: [realm.auth] });
    await using agent = await company.connectAgent([`--proxy=${squid.url}`], { env: await realm.login() });
    await company.traffic.transfer();
    await agent.stop();
    const like = { status: 200, user: realm.user, scheme: "Negotiate", target: `${NAMES.server}:443` };
    await squid.waitForRequest(like);
    assert.equal(await company.network.triedToPass(), 0);
  });

  test("accepts an agent with a keytab", async () => {
    await using squid = await Squid.start(company.network, { auth: [realm.auth] });
    await using _agent = await company.connectAgent([`--proxy=${squid.url}`], { env: realm.keytabEnv });
    await company.traffic.transfer();
  });

  test("refuses an agent without a ticket, and the agent says so", async () => {
    await using squid = await Squid.start(company.network, { auth: [realm.auth] });
    await using agent = company.startAgent([`--proxy=${squid.url}`], { env: realm.env });
    assert.match((await failureOf(agent)).reason, new RegExp(`${squid.url} .*(ticket|Kerberos)`));
  });

  test("that also offers Basic gets a password if there is no ticket", async () => {
    const basic = { scheme: "basic", user: "alice", password: "follow-the-rabbit" } as const;
    await using squid = await Squid.start(company.network, { auth: [realm.auth, basic] });
    const proxy = squid.url.replace("//", "//alice:follow-the-rabbit@");
    await using agent = await company.connectAgent([`--proxy=${proxy}`], { env: realm.env });
    await agent.stop();
    await squid.waitForRequest({ status: 200, user: "alice", scheme: "Basic" });
  });

  test("is killed and started again, and no stream ends", async () => {
    await using squid = await Squid.start(company.network, { auth: [realm.auth] });
    await using agent = await company.connectAgent([`--proxy=${squid.url}`], { env: await realm.login() });
    await outlives(company, agent, () => squid.restart());
  });
});
