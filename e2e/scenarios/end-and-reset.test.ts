import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { parseTarget } from "../../shared/address/target.ts";
import { encodeAnswer, encodeOpen, readOpen } from "../../shared/wire/stream-head.ts";
import { Flag, FrameType, header } from "../../shared/yamux/frame.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { fdCount } from "../harness/proc.ts";
import { welcomingServer } from "../harness/raw-server.ts";
import { scriptedAgent } from "../harness/scripted-agent.ts";
import { tapBefore } from "../harness/tap.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

// The end of a direction and the reset behind it come in one turn: a socket that is being ended cannot be reset any
// more, and must be closed all the same (shared/relay/reset.ts).

const ROUNDS = 12;

const fin = (id: number) => header(FrameType.windowUpdate, Flag.fin, id, 0);
const rst = (id: number) => header(FrameType.windowUpdate, Flag.rst, id, 0);
const data = (id: number, flag: number, bytes: Buffer) =>
  Buffer.concat([header(FrameType.data, flag, id, bytes.length), bytes]);

/**
 * Messages that are one read of the agent: what is in one of them is one turn, each of several is a turn of its own.
 */
const END_AND_RESET: readonly ((id: number) => readonly Buffer[])[] = [
  (id) => [Buffer.concat([fin(id), rst(id)])],
  (id) => [Buffer.concat([data(id, Flag.none, Buffer.from("a last word")), fin(id), rst(id)])],
  (id) => [fin(id), rst(id)],
  (id) => [Buffer.concat([data(id, Flag.none, Buffer.from("a last word")), fin(id)]), rst(id)],
];

/** Descriptors are back where they were; streams and targets are the caller's to ask. */
async function fdsBackAt(base: number): Promise<void> {
  await waitFor(() => fdCount(process.pid) <= base, { what: `descriptors at their base of ${base}` });
}

test("a stream that its caller ends and resets at once leaves nothing at the agent", async () => {
  await using world = await startWorld({ agents: 0, targets: ["echo"] });
  const { echo } = world.targets;
  await using raw = await welcomingServer(world);
  const { payload } = raw;
  const agent = await world.startAgent({ proxyServerPort: raw.server.port });
  const target = parseTarget(echo.address);
  const open = async (id: number) => {
    payload.length = 0;
    raw.send(data(id, Flag.syn, encodeOpen({ kind: "connect", target, timeoutMs: 5_000, id: "x" })));
    await waitFor(() => Buffer.concat(payload).includes('{"ok":true'), { what: "the answer" });
  };
  let base = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const id = 2 * (round + 1);
    await open(id);
    for (const message of END_AND_RESET[round % END_AND_RESET.length]?.(id) ?? []) raw.send(message);
    await waitFor(() => echo.open === 0 && agent.streamCount === 0, { what: `the end of stream ${id}` });
    // Files that are opened once stay open: the first round finds the base.
    if (round === 0) base = fdCount(process.pid);
  }
  await fdsBackAt(base);
  assert.equal(agent.connected, true);
});

test("a stream that its agent ends and resets at once leaves nothing at the server", async () => {
  await using world = await startWorld({ agents: 0 });
  const endAndReset = (stream: Stream, inOneMessage: boolean) => {
    stream.end("a last word");
    if (inOneMessage) stream.reset();
    else setImmediate(() => stream.reset());
  };
  let streams = 0;
  const onStream = (stream: Stream) => {
    stream.accept();
    void readOpen(stream, 5_000).then(() => {
      stream.write(encodeAnswer({ ok: true }));
      stream.once("data", () => endAndReset(stream, ++streams % 4 < 2));
    });
  };
  await using agent = await scriptedAgent(world, { onStream });
  const [tunnel] = world.server.tunnels.tunnels();
  const bases = new Map<string, number>();
  for (let round = 0; round < ROUNDS; round++) {
    const via = round % 2 === 0 ? "uds" : "tls";
    await using connection = await established(world.connect("10.0.0.1:80", { via }));
    const closed = once(connection.socket.resume(), "close").catch(() => {});
    connection.socket.write("go");
    await waitFor(() => tunnel?.streamCount === 0 && agent.session.streamCount === 0, {
      what: "the end of the stream",
    });
    connection.socket.destroy();
    await within(closed, 5_000, "the caller's end");
    if (!bases.has(via)) bases.set(via, fdCount(process.pid));
  }
  await fdsBackAt(Math.max(...bases.values()));
});

test("a caller's end and reset that reach the agent in one read leave no socket, descriptor or stream at either end", async () => {
  await using world = await startWorld({ relay: true, targets: ["echo"] });
  const [agent] = world.agents;
  const [tunnel] = world.server.tunnels.tunnels();
  const { echo } = world.targets;
  const { relay } = world;
  let base = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    {
      const { tap, listener } = await tapBefore(world.listener("tls"));
      await using _ = tap;
      await using connection = await established(connectThrough(listener, echo.address));
      await connection.send("here");
      await connection.readBytes(4);
      await waitFor(() => tunnel?.replayBytes === 0, { what: "nothing under way" });
      relay.drop("backward");
      connection.end();
      await waitFor(() => (tunnel?.replayBytes ?? 0) > 0, { what: "the end to be under way" });
      tap.back?.resetAndDestroy();
      // A socket that has read an end learns of a reset by writing.
      for (const socket of echo.sockets()) socket.write("for nobody");
      await waitFor(() => tunnel?.streamCount === 0, { what: "the reset to be under way" });
      relay.restore("backward");
      await waitFor(() => echo.open === 0 && agent?.streamCount === 0, { what: "the end of the stream" });
    }
    // Files that are opened once stay open: the first round finds the base.
    if (round === 0) base = fdCount(process.pid);
  }
  await fdsBackAt(base);
});
