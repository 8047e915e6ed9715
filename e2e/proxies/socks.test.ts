import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { NAMES, SERVER } from "./harness/addresses.ts";
import { assertSecret, failureOf } from "./harness/agent-log.ts";
import { Company } from "./harness/company.ts";
import { Microsocks } from "./harness/microsocks.ts";
import { missing } from "./harness/missing.ts";
import { outlives } from "./harness/survival.ts";

const ALICE = { user: "alice", password: "drink-me" } as const;

describe("a SOCKS 5 proxy", { skip: missing("microsocks") }, () => {
  let company: Company;

  before(async () => {
    company = await Company.create();
  });
  after(() => company?.[Symbol.asyncDispose]());

  test("carries an agent's traffic, and resolves the server's name for socks5h", async () => {
    await using socks = await Microsocks.start(company.network);
    await using _agent = await company.connectAgent([`--proxy=socks5h://${socks.address}`]);
    await company.traffic.transfer();
    assert.ok(socks.log.some((line) => line.includes(`connected to ${NAMES.server}:443`)));
    assert.equal(await company.network.triedToPass(), 0);
  });

  test("gets an address for socks5, which the agent has resolved", async () => {
    await using socks = await Microsocks.start(company.network);
    const proxy = `--proxy=socks5://${socks.address}`;
    await using _agent = await company.connectAgent([proxy], { server: NAMES.serverKnownInside });
    await company.traffic.transfer();
    assert.ok(socks.log.some((line) => line.includes(`connected to ${SERVER}:443`)));
    await using lost = company.startAgent([proxy]);
    assert.match((await failureOf(lost)).reason, new RegExp(`${NAMES.server}.*resolve`));
  });

  test("accepts the right password, and the agent says what to give or to check", async () => {
    await using socks = await Microsocks.start(company.network, ALICE);
    const proxy = `--proxy=socks5h://${socks.address}`;
    const file = company.dir.file("credentials");
    await using unknown = company.startAgent([proxy]);
    assert.match(
      (await failureOf(unknown)).reason,
      new RegExp(`socks5h://${socks.address} .*--proxy-credentials-file`),
    );
    writeFileSync(file, "alice:eat-me\n");
    await using refused = company.startAgent([proxy, `--proxy-credentials-file=${file}`]);
    assert.match((await failureOf(refused)).reason, new RegExp(`socks5h://${socks.address} .*refuses.*password`));
    writeFileSync(file, `${ALICE.user}:${ALICE.password}\n`);
    await using agent = await company.connectAgent([proxy, `--proxy-credentials-file=${file}`]);
    await company.traffic.transfer();
    assertSecret(agent, "alice", ALICE.password);
    assertSecret(refused, "alice", "eat-me");
  });

  test("is killed and started again, and no stream ends", async () => {
    await using socks = await Microsocks.start(company.network);
    await using agent = await company.connectAgent([`--proxy=socks5h://${socks.address}`]);
    await outlives(company, agent, () => socks.restart());
  });
});
