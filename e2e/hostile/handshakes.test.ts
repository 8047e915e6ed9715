import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createSecureContext } from "node:tls";
import { assertUnharmed, BESIDE_ANYBODY } from "../harness/bystander.ts";
import { connectThrough } from "../harness/caller.ts";
import { startFlood } from "../harness/flood.ts";
import { LightAgent } from "../harness/light-agent.ts";
import { nodeOnly, ON_BUN } from "../harness/processes.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { waitFor, within } from "../harness/wait.ts";

const FLOODER = "127.0.66.1";
const AGENTS = 20;
const DEADLINE_MS = 20_000;

/** Honest agents, each with an address of its own, of which each has its welcome. */
async function agentsComeIn({ red, agentPort }: TwoTenants): Promise<void> {
  const secureContext = createSecureContext({ ca: red.ca, ...(await red.agentPair) });
  const agents: LightAgent[] = [];
  const comesIn = (index: number): Promise<void> =>
    new Promise((resolve) => {
      const agent = new LightAgent({
        ...{ port: agentPort, secureContext, servername: red.sni, agentId: `honest-${index}` },
        localAddress: `127.0.10.${index + 1}`,
        onConnected: () => resolve(),
      });
      agents.push(agent);
      agent.dial();
    });
  try {
    const all = Promise.all(Array.from({ length: AGENTS }, (_, index) => comesIn(index)));
    await within(all, DEADLINE_MS, "each agent's welcome");
  } finally {
    for (const agent of agents) agent.stop();
  }
}

/** Red's kube-apiserver has an answer: to a target that is none, which needs no agent. */
async function callerIsAnswered({ red, callerPort }: TwoTenants): Promise<void> {
  await using answer = await connectThrough(await red.listener("tls", callerPort), "127.0.0.1:0");
  assert.equal(answer.status, 400, answer.reason);
}

test("one address that floods both ports with ClientHellos of a cluster keeps neither its agents nor its callers out", async (t) => {
  await using tenants = await startTwoTenants();
  const { red, callerPort, agentPort } = tenants;
  await using flood = await startFlood("client-hellos", {
    ...{ ports: [agentPort, callerPort], servernames: [red.sni], localAddress: FLOODER },
    ...{ connections: 6_000, perSecond: 3_000 },
  });
  await waitFor(() => Number(flood.counts["opened"]) > 1_500, { deadlineMs: 30_000, what: "the flood to be there" });
  await agentsComeIn(tenants);
  await callerIsAnswered(tenants);
  t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
});

const CONNECTS = 100;

test("at a limit of 4,096 open files one address with ClientHellos that never go on leaves the other half to others", async (t) => {
  await using tenants = await startTwoTenants({ process: { fileLimit: 4_096 } });
  const { red, callerPort, agentPort, server } = tenants;
  await using _flood = await startFlood("client-hellos", {
    ...{ ports: [agentPort, callerPort], servernames: [red.sni], localAddress: FLOODER },
    ...{ connections: 20_000, perSecond: 600 },
  });
  await waitFor(() => server.fdCount() > 2_000, { deadlineMs: 60_000, what: "2,000 connections of the flood" });
  let served = 0;
  let most = 0;
  for (let count = 0; count < CONNECTS; count++) {
    await using connection = await tenants.connect();
    if (connection.status === 200) served++;
    most = Math.max(most, server.fdCount());
    await sleep(40);
  }
  t.diagnostic(`${served} of ${CONNECTS} CONNECTs were served, with at most ${most} files open`);
  assert.ok(served >= 0.99 * CONNECTS, `${served} of ${CONNECTS} were served`);
  assert.ok(most < 2_500, `${most} files were open`);
});

test("a cluster's limit of handshakes keeps a flood of one address apart from its agents and its callers", async () => {
  await using tenants = await startTwoTenants({ red: { limits: { handshakesPerSecond: 40 } } });
  const { red, agentPort } = tenants;
  await using _flood = await startFlood("client-hellos", {
    ...{ ports: [agentPort], servernames: [red.sni], localAddress: FLOODER, connections: 1_000, perSecond: 500 },
  });
  await agentsComeIn(tenants);
  await callerIsAnswered(tenants);
});

/** Bytes that a network may waste at once at one side of a cluster, and in a second; such a handshake has 2 KiB. */
const [WASTE_AT_ONCE, WASTE_PER_SECOND, LEAST_BYTES] = [32 * 1024, 8 * 1024, 2 * 1024];

const ALL_TOGETHER = "one address whose certificates take long to verify, and come together, holds up nobody";
test(ALL_TOGETHER, nodeOnly("handshakes are read as they come (docs/versions.md)"), async (t) => {
  await using tenants = await startTwoTenants();
  await using flood = await startFlood("certificates", {
    ...{ port: tenants.agentPort, servername: tenants.red.sni, localAddress: FLOODER, connections: 200 },
  });
  const begun = performance.now();
  const came = () => Number(flood.counts["answered"]) > 0;
  await waitFor(came, { deadlineMs: 60_000, what: "an answer to one of them" });
  t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
  const { answered } = await flood.stop();
  const seconds = (performance.now() - begun) / 1_000 + 1;
  const most = (WASTE_AT_ONCE + seconds * WASTE_PER_SECOND) / LEAST_BYTES;
  t.diagnostic(`${answered} certificates were verified, ${most} at most`);
  assert.ok(Number(answered) <= most, `${answered} certificates were verified`);
});

for (const side of ["callers", "agents"] as const) {
  test(`a flood of KeyUpdates on the ${side}' port is cut, comes back late, and holds up nobody`, async (t) => {
    await using tenants = await startTwoTenants();
    const port = side === "callers" ? tenants.callerPort : tenants.agentPort;
    await using flood = await startFlood("key-updates", {
      ...{ port, servername: tenants.red.sni, localAddress: FLOODER, connections: 2, each: 10_000 },
    });
    const begun = performance.now();
    t.diagnostic(await assertUnharmed(tenants));
    const { opened, cut } = await flood.stop();
    const seconds = (performance.now() - begun) / 1_000;
    assert.ok(Number(cut) >= 2, `${cut} connections were cut`);
    if (ON_BUN) return; // there a handshake is read as it comes
    // Each offence doubles the penalty, from 1 s on: this number fits in, and two connections come each time.
    const most = 2 * (1 + Math.log2(1 + seconds));
    assert.ok(Number(opened) <= most, `${opened} handshakes of the flooding network were served in ${seconds} s`);
    assert.ok(tenants.server.log.some((line) => line.includes("flood of TLS messages")));
  });
}
