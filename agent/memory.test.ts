import assert from "node:assert/strict";
import net from "node:net";
import { type TestContext, test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { LinkServer, welcome } from "../shared/link/testing/ends.ts";
import { readAnswer } from "../shared/wire/testing/answer.ts";
import { Session } from "../shared/yamux/session.ts";
import type { Stream } from "../shared/yamux/stream.ts";
import { open, prepared } from "./testing/agent.ts";
import { listenFor } from "./testing/listener.ts";

const MIB = 1024 * 1024;

/** An agent that may hold 1 MiB, a target that does not read, and the session of its server. */
async function overfull(t: TestContext) {
  const initialWindow = 4 * MIB;
  const server = await LinkServer.start({ welcome: () => welcome({ initialWindow }) });
  const { start } = await prepared(t, { memoryLimit: MIB }, {}, server);
  const sockets: net.Socket[] = [];
  const target = net.createServer({ pauseOnConnect: true }, (socket) => sockets.push(socket));
  const address = `127.0.0.1:${await listenFor(t, target)}`;

  const agent = await start();
  const shown = async () => {
    const answer = await fetch(`http://127.0.0.1:${agent.addresses.admin?.port}/status`);
    return ((await answer.json()) as { memory: Record<string, number | boolean> }).memory;
  };
  const refusing = async (wanted: boolean) => {
    const deadline = Date.now() + 10_000;
    while ((await shown())["refusing"] !== wanted) {
      assert.ok(Date.now() < deadline, `${wanted ? "" : "not "}refusing within 10 s: ${JSON.stringify(await shown())}`);
    }
  };
  await agent.whenConnected();
  const link = await server.link();
  const session = new Session("server", link, { onStream: () => {}, onClosed: () => {} }, { initialWindow });
  t.after(() => session.destroy());
  const first = open(session, address);
  assert.equal((await readAnswer(first, 2_000)).ok, true);
  // More than its window and all that lies in the sockets on its way to the target: while those grow it is not full for
  // good.
  first.write(Buffer.alloc(32 * MIB));
  return { agent, session, address, sockets, first, shown, refusing };
}

const wasAccepted = async (stream: Stream): Promise<boolean> =>
  (await readAnswer(stream, 2_000).catch(() => undefined)) !== undefined;

test("while nothing of what targets leave unread has stopped the agent refuses streams, until it has been read", async (t) => {
  const { agent, session, address, sockets, first, shown, refusing } = await overfull(t);
  await refusing(true);
  let second = open(session, address);
  while (await wasAccepted(second)) {
    await refusing(true);
    second = open(session, address);
  }
  assert.equal((second.errored as NodeJS.ErrnoException).code, "ECONNRESET");
  const full = await shown();
  assert.deepEqual([full["limitBytes"], full["refusedStreams"]], [MIB, 1]);
  const metrics = await (await fetch(`http://127.0.0.1:${agent.addresses.health?.port}/metrics`)).text();
  assert.match(metrics, /^culvert_agent_memory_limit_bytes 1048576$/m);
  assert.match(metrics, /^culvert_agent_streams_refused_for_memory_total 1$/m);

  sockets[0]?.resume();
  await until(() => first.writableLength === 0 || first.destroyed);
  await refusing(false);
  assert.equal(await wasAccepted(open(session, address)), true);
});

test("a target that has stopped reading is ended where the agent's memory is short, and others are served", async (t) => {
  const { session, address, first, shown, refusing } = await overfull(t);
  await until(() => first.destroyed);
  await refusing(false);
  const { heldBytes, endedConnections } = await shown();
  assert.equal(endedConnections, 1);
  assert.ok(Number(heldBytes) < MIB, `${heldBytes} bytes are held`);
  assert.equal(await wasAccepted(open(session, address)), true);
});
