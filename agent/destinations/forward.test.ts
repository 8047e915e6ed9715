import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { until } from "../../shared/basics/testing/wait.ts";
import type { AgentContext } from "../context/context.ts";
import { contextOf } from "../testing/context.ts";
import { listenFor } from "../testing/listener.ts";
import { forward } from "./forward.ts";

const DESTINATION = { port: 6443, target: { host: "kas", port: 6443 } };

/** One connection of the node, without a server; resolves when it was reset. */
async function resetConnection(
  t: TestContext,
  admits: (address: string) => boolean,
  change: Partial<AgentContext> = {},
) {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const context = contextOf({ log, ...change });
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => {
    void forward(socket, DESTINATION, admits, () => [], context);
  });
  const socket = connect({ host: "127.0.0.1", port: await listenFor(t, server) });
  const [error] = await once(socket, "error");
  assert.equal(error.code, "ECONNRESET");
  await until(() => lines.length === 1);
  const [{ msg, outcome, reason } = {}] = lines;
  assert.equal(msg, "connection of the node was reset");
  const counted = `culvert_agent_destination_connections_total{outcome="${outcome}"} 1`;
  assert.ok((await context.metrics.registry.metrics()).includes(counted), counted);
  return { outcome, reason: String(reason) };
}

test("a connection from an address that is not allowed is reset before any server is asked", async (t) => {
  const { outcome, reason } = await resetConnection(t, (address) => address !== "127.0.0.1");
  assert.equal(outcome, "forbidden");
  assert.match(reason, /^127\.0\.0\.1 is neither an address of this node nor in --bind-allow-source$/);
});

test("a connection is reset while no server is connected", async (t) => {
  const { outcome, reason } = await resetConnection(t, () => true);
  assert.equal(outcome, "server_lost");
  assert.match(reason, /no server that takes connections of nodes is connected/);
});

test("a connection whose source cannot be looked up is reset", async (t) => {
  const fails = (): boolean => {
    throw new Error("uv_interface_addresses returned EMFILE");
  };
  assert.equal((await resetConnection(t, fails)).outcome, "internal");
});
