import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { NAMES } from "./harness/addresses.ts";
import { assertSecret, failureOf } from "./harness/agent-log.ts";
import { Company } from "./harness/company.ts";
import { missing } from "./harness/missing.ts";
import { Squid } from "./harness/squid.ts";
import { outlives } from "./harness/survival.ts";

const SERVER = `${NAMES.server}:443`;
const [FIRST, SECOND] = ["curiouser-and-curiouser", "off:with%their heads"];
/** Longer than the agent waits after other failures at first. */
const LONG_MS = 10_000;

describe("squid", { skip: missing("squid") }, () => {
  let company: Company;

  before(async () => {
    company = await Company.create();
  });
  after(() => company?.[Symbol.asyncDispose]());

  test("carries an agent's traffic, and nothing bypasses it", async () => {
    await using squid = await Squid.start(company.network);
    await using agent = await company.connectAgent([`--proxy=${squid.url}`]);
    await company.traffic.transfer();
    await agent.stop();
    await squid.waitForRequest({ status: 200, user: "-", method: "CONNECT", target: SERVER });
    assert.equal(await company.network.triedToPass(), 0);
  });

  test("carries the traffic of an agent that has a token and no certificate", async () => {
    await using squid = await Squid.start(company.network);
    await using _agent = await company.connectAgent([`--proxy=${squid.url}`], { identity: "token" });
    await company.traffic.transfer();
  });

  test("is named by HTTPS_PROXY, and bypassed where NO_PROXY says so", async () => {
    await using squid = await Squid.start(company.network);
    const env = { HTTPS_PROXY: squid.url, no_proxy: ".corp.example" };
    await using found = await company.connectAgent([], { env });
    await found.stop();
    await squid.waitForRequest({ status: 200, target: SERVER });

    const spared = { HTTPS_PROXY: squid.url, no_proxy: NAMES.serverKnownInside };
    const before = await company.network.triedToPass();
    await using agent = company.startAgent(["--handshake-timeout=1s"], {
      env: spared,
      server: NAMES.serverKnownInside,
    });
    await failureOf(agent);
    assert.ok((await company.network.triedToPass()) > before, "it went straight to the server");
    assert.equal(squid.requests().length, 1);
  });

  test("is named by a PAC file", async () => {
    await using squid = await Squid.start(company.network);
    const pac = company.dir.file("proxy.pac");
    const proxy = squid.url.slice("http://".length);
    writeFileSync(pac, `function FindProxyForURL(url, host) { return "PROXY ${proxy}; DIRECT"; }`);
    await using agent = await company.connectAgent([`--pac=${pac}`]);
    await agent.stop();
    await squid.waitForRequest({ status: 200, target: SERVER });
  });

  test("is the next one when the first does not answer", async () => {
    await using squid = await Squid.start(company.network);
    await using _agent = await company.connectAgent([`--proxy=http://${NAMES.proxy}:8080`, `--proxy=${squid.url}`]);
    await company.traffic.transfer();
  });

  test("refuses a port that it does not know", async () => {
    await using squid = await Squid.start(company.network);
    await using agent = company.startAgent([`--proxy=${squid.url}`], { server: `${NAMES.server}:8443` });
    assert.match((await failureOf(agent)).reason, new RegExp(`${squid.url} .*403`));
  });

  test("is killed and started again, and no stream ends", async () => {
    await using squid = await Squid.start(company.network);
    await using agent = await company.connectAgent([`--proxy=${squid.url}`]);
    await outlives(company, agent, () => squid.restart());
  });

  for (const scheme of ["basic", "digest"] as const) {
    describe(`with ${scheme} authentication`, () => {
      const auth = { scheme, user: "alice", password: FIRST } as const;

      test("accepts the right password", async () => {
        await using squid = await Squid.start(company.network, { auth: [auth] });
        const proxy = squid.url.replace("//", `//alice:${encodeURIComponent(FIRST)}@`);
        await using agent = await company.connectAgent([`--proxy=${proxy}`, "--log-level=debug"]);
        await company.traffic.transfer();
        await agent.stop();
        const { scheme: used } = await squid.waitForRequest({ status: 200, user: "alice", target: SERVER });
        assert.equal(used.toLowerCase(), scheme);
        assertSecret(agent, "alice", FIRST);
      });

      test("may close the connection on which it asks for the password", async () => {
        await using squid = await Squid.start(company.network, { auth: [auth], closes: true });
        await using agent = await company.connectAgent([`--proxy=${squid.url}`, credentials("alice", FIRST)]);
        await agent.stop();
        await squid.waitForRequest({ status: 200, user: "alice", target: SERVER });
      });

      test("wants a password, and the agent says so", async () => {
        await using squid = await Squid.start(company.network, { auth: [auth] });
        await using agent = company.startAgent([`--proxy=${squid.url}`]);
        assert.match(
          (await failureOf(agent)).reason,
          new RegExp(`${squid.url} .*--proxy-credentials-file.*${scheme}`, "i"),
        );
        await squid.waitForRequest({ status: 407, scheme: "-" });
      });

      test("refuses a wrong password, and the agent says so and does not try it again and again", async () => {
        await using squid = await Squid.start(company.network, { auth: [auth] });
        const file = credentials("alice", "wrong-password");
        await using agent = company.startAgent([`--proxy=${squid.url}`, file]);
        const { reason, waitMs } = await failureOf(agent);
        assert.match(reason, new RegExp(`${squid.url} .*refuses the user or the password.*${scheme}`, "i"));
        assert.equal(squid.requests().filter((request) => request.scheme !== "-").length, 1);
        assert.ok(waitMs >= LONG_MS, `${waitMs} ms before the next attempt may lock the account`);
        assertSecret(agent, "alice", "wrong-password");
      });

      test("has another password after its restart: the new one in the file opens the next connection, and no stream ends", async () => {
        await using squid = await Squid.start(company.network, { auth: [auth] });
        const file = credentials("alice", FIRST);
        await using agent = await company.connectAgent([`--proxy=${squid.url}`, file]);
        await outlives(company, agent, async () => {
          credentials("alice", SECOND);
          await squid.restart({ ...auth, password: SECOND });
        });
        await agent.stop();
        await squid.waitForRequest({ status: 200, user: "alice", target: SERVER });
        assertSecret(agent, "alice", FIRST, SECOND);
      });
    });
  }

  test("that offers Basic and Digest gets the password by Digest, which keeps it secret", async () => {
    const alice = { user: "alice", password: FIRST };
    const auth = [
      { scheme: "basic", ...alice },
      { scheme: "digest", ...alice },
    ] as const;
    await using squid = await Squid.start(company.network, { auth });
    await using agent = await company.connectAgent([`--proxy=${squid.url}`, credentials("alice", FIRST)]);
    await agent.stop();
    await squid.waitForRequest({ status: 200, user: "alice", scheme: "Digest" });
    assert.ok(squid.requests().every((request) => request.scheme !== "Basic"));
  });

  test("that refuses without asking gets the password by Basic, and a wrong one is not sent again unasked", async () => {
    const auth = [{ scheme: "basic", user: "alice", password: FIRST }] as const;
    await using squid = await Squid.start(company.network, { auth, asksNobody: true });
    const flags = [`--proxy=${squid.url}`, credentials("alice", "wrong-password"), "--sync-interval-cap=1s"];
    await using agent = company.startAgent(flags);
    await agent.waitForLog(/refuses the user or the password \(Basic\)/);
    await agent.waitForLog(/account lockout .*; the password was not asked for \(403 Forbidden/);
    assert.equal(squid.requests().filter(({ scheme }) => scheme !== "-").length, 1);
    credentials("alice", FIRST);
    await agent.waitForLog(/"uplink connected"/);
    await agent.stop();
    await squid.waitForRequest({ status: 403, scheme: "-", target: SERVER });
    await squid.waitForRequest({ status: 200, scheme: "Basic", user: "alice", target: SERVER });
    assert.ok(
      squid.requests().every(({ status, scheme }) => status !== 407 || scheme !== "-"),
      "it never asked",
    );
    assertSecret(agent, "alice", FIRST, "wrong-password");
  });

  test("refuses until the file has the right password, and then accepts it without a restart of the agent", async () => {
    await using squid = await Squid.start(company.network, {
      auth: [{ scheme: "basic", user: "alice", password: FIRST }],
    });
    const file = credentials("alice", "wrong-password");
    await using agent = company.startAgent([`--proxy=${squid.url}`, file, "--sync-interval-cap=1s"]);
    await agent.waitForLog(/"uplink attempt failed"/);
    credentials("alice", FIRST);
    await agent.waitForLog(/"uplink connected"/);
  });

  /** Writes the file, and returns the flag that names it. */
  function credentials(user: string, password: string): string {
    const file = company.dir.file("credentials");
    writeFileSync(file, `${user}:${password}\n`);
    return `--proxy-credentials-file=${file}`;
  }
});
