import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import type { Hello } from "../../shared/link/control.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Server } from "../server.ts";
import { agentOf, fetchText, pki, start } from "../testing/server.ts";

const NAMES = { agentId: "a", instance: "1" };

/** A peer whose hello says that it only looks at the path. */
async function doctorOf(server: Server, more: Partial<Hello> = {}) {
  const port = server.addresses.agents?.port ?? 0;
  const { carrier, welcome, remote } = await dialCarrier({
    ...{ host: "localhost", port, address: { host: "127.0.0.1", port }, path: "/culvert/v1/tunnel" },
    tls: { ca: pki.ca.cert, cert: pki.agent.cert, key: pki.agent.key },
    hello: () => ({ type: "hello", version: 1, ...NAMES, software: "doctor", probe: true, ...more }),
    ...{ keepaliveMs: 20_000, timeoutMs: 5_000 },
  });
  const link = new Link(welcome.link, remote, carrier, { graceMs: 0, replayBytes: 1024 * 1024 });
  const onStream = () => assert.fail("it gets no CONNECT");
  const session = new Session("client", link, { onStream, onClosed: () => {} });
  return { carrier, session, welcome };
}

test("a doctor leaves the agent with its names alone, and gets no CONNECT", async () => {
  await using server = await start({ linkGraceMs: 30_000 });
  const cluster = server.tunnels.clusters.get("default") ?? assert.fail();
  const agent = await agentOf(server, NAMES);
  await until(() => cluster.pick() !== undefined);
  const held = cluster.pick();
  const { session, welcome } = await doctorOf(server);
  await until(() => cluster.tunnels().size === 2);
  assert.deepEqual([cluster.pick(), cluster.pick(held)], [held, undefined]);
  assert.equal(held?.draining, false);
  assert.equal(welcome.graceMs, 0, "nobody waits for it");
  const counted = await server.metrics.registry.metrics();
  assert.match(counted, /^culvert_server_tunnels_opened_total\{cluster="default"\} 1$/m, "it serves nobody");
  const { clusters } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.deepEqual(
    clusters[0].tunnels.map((tunnel: Record<string, unknown>) => [tunnel["probe"], tunnel["draining"]]),
    [
      [false, false],
      [true, false],
    ],
  );
  session.destroy();
  await until(() => cluster.tunnels().size === 1);
  assert.equal(agent.session.closed, false);
});

test("alone it makes no cluster ready, and cut it leaves no trace", async () => {
  await using server = await start({ linkGraceMs: 30_000 });
  const cluster = server.tunnels.clusters.get("default") ?? assert.fail();
  const { carrier } = await doctorOf(server);
  await until(() => cluster.tunnels().size === 1);
  assert.deepEqual([cluster.pick(), cluster.expected], [undefined, undefined]);
  carrier.destroy();
  await until(() => cluster.tunnels().size === 0);
});
