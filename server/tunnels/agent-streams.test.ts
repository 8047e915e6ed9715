import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodeHead } from "../../shared/wire/stream-head.ts";
import { isViolation } from "../../shared/yamux/errors.ts";
import { Session } from "../../shared/yamux/session.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { AgentStreams } from "./agent-streams.ts";

/** An agent's session with a server. */
function agentOf() {
  const [near, far] = duplexPair();
  const streams = new AgentStreams();
  let ended: Error | undefined;
  const server = new Session("server", new DuplexTransport(near), {
    onStream: (stream) => streams.refuse(stream),
    onClosed: (reason) => {
      ended = reason;
    },
  });
  const none = { onStream: () => assert.fail("no stream is opened here"), onClosed: () => {} };
  const agent = new Session("client", new DuplexTransport(far), none);
  return {
    server,
    /** What the server has ended the session for. */
    get ended() {
      return ended;
    },
    open: (head?: Buffer) => agent.open(head).on("error", () => {}),
    [Symbol.dispose]: () => {
      agent.destroy();
      server.destroy();
    },
  };
}

test("each stream that an agent opens is reset before it is accepted, and the tunnel lives", async () => {
  using world = agentOf();
  const streams = [undefined, encodeHead({ kind: "probe", mode: "echo" })].map((head) => world.open(head));
  await until(() => streams.every((stream) => stream.destroyed));
  assert.ok(streams.every((stream) => !stream.acknowledged));
  assert.deepEqual([world.ended, world.server.streamCount], [undefined, 0]);
});

test("an agent that opens streams again and again loses its session", async () => {
  using world = agentOf();
  for (let opened = 0; opened < 100; opened++) world.open().destroy();
  await until(() => world.server.streamCount === 0);
  assert.equal(world.ended, undefined);
  for (let opened = 0; opened < 2_000 && world.ended === undefined; opened++) world.open().destroy();
  await until(() => world.ended !== undefined);
  assert.ok(isViolation(world.ended));
});
