import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Program } from "../harness/program.ts";
import { waitFor } from "../harness/wait.ts";
import { NAMES } from "./harness/addresses.ts";
import { Company } from "./harness/company.ts";
import { missing } from "./harness/missing.ts";
import { Nginx } from "./harness/nginx.ts";

/** Instead of nginx' 60 s. */
const READ_TIMEOUT_S = 2;
/** Instead of an hour. */
const IDLE_MS = 5 * READ_TIMEOUT_S * 1_000;
/** Lost connections after which a test goes on. */
const CUTS = 2;

const UPSTREAMS = ["over TLS of its own", "in clear"] as const;

// Each has a network of its own, and waits for what takes its time.
describe("an agent behind nginx, which ends TLS", { concurrency: true, skip: missing("nginx") }, () => {
  for (const upstream of UPSTREAMS) {
    test(`nginx ends TLS, goes on ${upstream} and cuts what is silent: with pings that come sooner it cuts nothing`, async () => {
      await using company = await Company.create();
      const { serverAuthority, files } = company.pki;
      const pair = await serverAuthority.issue({ cn: "balancer", names: [NAMES.server], usage: "server" });
      const upstreamCa = upstream === "in clear" ? {} : { upstreamCa: files["cluster-ca.crt"] };
      await using nginx = await Nginx.start(company.network, { pair, ...upstreamCa, readTimeoutS: READ_TIMEOUT_S });
      const way = [`--server-address=${nginx.address}`, `--outer-ca=${files["server-ca.crt"]}`];
      await using agent = await company.connectAgent([...way, `--keepalive=${READ_TIMEOUT_S * 250}ms`]);
      const silent = await company.traffic.talk({ silent: true });
      const known = openedIn(company)[0] ?? "";
      assert.ok(known.includes("CN=culvert-agent"), known);

      await sleep(IDLE_MS);
      assert.equal(suspensionsOf(agent), 0);
      await company.traffic.transfer();
      await silent.finish();
      assert.equal(openedIn(company).length, 1);
    });
  }

  test("a token agent behind nginx, which goes on in clear, lives through its cuts and its restart", async () => {
    await using company = await Company.create();
    // By the CA that the agent trusts, because the agent sends its token to the balancer as to the server.
    const { clusterAuthority } = company.pki;
    const pair = await clusterAuthority.issue({ cn: "balancer", names: [NAMES.server], usage: "server" });
    await using nginx = await Nginx.start(company.network, { pair, readTimeoutS: READ_TIMEOUT_S });
    await using agent = await company.connectAgent([`--server-address=${nginx.address}`], { identity: "token" });
    const silent = await company.traffic.talk({ silent: true });
    const known = openedIn(company)[0] ?? "";
    assert.ok(known.includes("SUB=") && !known.includes('"innerTls":true'), known);

    await waitFor(() => suspensionsOf(agent) >= CUTS, { deadlineMs: 30_000, what: `${CUTS} cuts` });
    const talk = await company.traffic.talk();
    await nginx.restart();
    await talk.finish();
    await company.traffic.transfer();
    await silent.finish();
    assert.equal(openedIn(company).length, 1);
  });

  test("an agent that the server refuses gets the server's own answer behind nginx, too", async () => {
    await using company = await Company.create({ agentPath: "/elsewhere" });
    const { serverAuthority, files } = company.pki;
    const pair = await serverAuthority.issue({ cn: "balancer", names: [NAMES.server], usage: "server" });
    await using nginx = await Nginx.start(company.network, { pair, readTimeoutS: 60 });
    const way = [`--server-address=${nginx.address}`, `--outer-ca=${files["server-ca.crt"]}`];
    await using agent = company.startAgent(way);
    const line = await agent.waitForLog(/"uplink attempt failed"/);
    assert.match(
      (JSON.parse(line) as { reason: string }).reason,
      /^the server refused the tunnel \(404\): agents connect at \/elsewhere \(--agent-path\)/,
    );
  });
});

function openedIn({ server }: Company): string[] {
  return server.log.filter((line) => line.includes('"tunnel opened"'));
}

function suspensionsOf(agent: Program): number {
  return agent.log.filter((line) => line.includes('"uplink suspended"')).length;
}
