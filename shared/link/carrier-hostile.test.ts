import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import type { TLSSocket } from "node:tls";
import { until } from "../basics/testing/wait.ts";
import type { Link } from "./link.ts";
import { CarrierLost, LINK_ENDED } from "./link-events.ts";
import { HELLO, Inbox, LinkServer, rawClient } from "./testing/ends.ts";
import { frame, textFrame } from "./testing/frames.ts";

const KEY = Buffer.from([9, 8, 7, 6]);

let rawAgents = 0;

/** A link at the server whose agent is written by hand, past the handshake. */
async function rawAgent(
  server: LinkServer,
): Promise<{ socket: TLSSocket; far: Link; inbox: Inbox; heard: () => Buffer }> {
  const agentId = `raw-${++rawAgents}`;
  const socket = await rawClient(server.port, textFrame({ ...HELLO, agentId }, KEY));
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.resume();
  const far = await server.linkOf(agentId);
  const inbox = new Inbox();
  far.start(inbox);
  return { socket, far, inbox, heard: () => Buffer.concat(chunks) };
}

/** The code in the close frame that ends what a server sent. */
function closeCode(bytes: Buffer): number | undefined {
  for (let at = 0; at < bytes.length; ) {
    const short = (bytes[at + 1] as number) & 0x7f;
    const length = short === 126 ? bytes.readUInt16BE(at + 2) : short;
    const payload = at + (short === 126 ? 4 : 2);
    if (((bytes[at] as number) & 0x0f) === 8) return bytes.readUInt16BE(payload);
    at = payload + length;
  }
  return undefined;
}

/** A text message, in fragments of this number of bytes. */
function fragments(content: string, each: number): Buffer {
  const count = Math.ceil(content.length / each);
  const nth = (index: number) =>
    frame({
      opcode: index === 0 ? 1 : 0,
      final: index === count - 1,
      payload: Buffer.from(content.slice(index * each, (index + 1) * each)),
      mask: KEY,
    });
  return Buffer.concat(Array.from({ length: count }, (_, index) => nth(index)));
}

test("a message or frame that breaks the rules ends the carrier with its code, and without a crash", async () => {
  const text = (content: string) => frame({ opcode: 1, payload: Buffer.from(content), mask: KEY });
  const table: [string, Buffer, number, RegExp][] = [
    ["no JSON", text("{"), 4450, /not JSON/],
    ["no object", text("[1]"), 4450, /object with a type/],
    ["null", text("null"), 4450, /object with a type/],
    ["a bad field", text('{"type":"drain","retryAfterMs":-1}'), 4450, /bad drain message: retryAfterMs/],
    ["longer than 8 KiB", text(`{"type":"ping","x":"${"a".repeat(8192)}"}`), 4450, /too long/],
    ["more than ws takes", text("a".repeat(200_000)), 1009, /Max payload/],
    ["in 65 fragments", fragments("a".repeat(195), 3), 1008, /Too many message fragments/],
    ["many in a second", Buffer.concat(Array.from({ length: 250 }, () => text('{"type":"later"}'))), 4450, /too many/],
    ["no UTF-8", frame({ opcode: 1, payload: Buffer.from([0xff]), mask: KEY }), 1007, /UTF-8/],
    ["reserved bits", frame({ opcode: 2, reserved: 0x40, mask: KEY }), 1002, /RSV1/],
    ["no mask", frame({ opcode: 2, payload: Buffer.from("x") }), 1002, /MASK/],
    ["2^40 bytes", frame({ opcode: 2, mask: KEY, claims: 1n << 40n }), 1002, /too long/],
    ["text inside binary", Buffer.concat([frame({ opcode: 2, final: false, mask: KEY }), text("{}")]), 1002, /inside/],
  ];
  await using server = await LinkServer.start();
  await Promise.all(
    table.map(async ([name, bytes, code, sentence]) => {
      const { socket, inbox, heard } = await rawAgent(server);
      const closed = new Promise((resolve) => socket.once("close", resolve));
      socket.write(Buffer.concat([bytes, frame({ opcode: 2, payload: Buffer.from("behind"), mask: KEY })]));
      assert.match((await inbox.closed)?.message ?? "", sentence, name);
      await until(() => closeCode(heard()) !== undefined);
      assert.equal(closeCode(heard()), code, name);
      if (name === "2^40 bytes") assert.ok(heard().includes(`${LINK_ENDED}: `), "the peer hears that the link is over");
      assert.equal(inbox.late, 0, name);
      if (code >= 4000) assert.equal(inbox.bytes, 0, `${name}: nothing behind it counts`); // ws objects a tick later
      socket.end(frame({ opcode: 8, payload: heard().subarray(-2), mask: KEY }));
      await closed;
    }),
  );
  await until(() => server.sockets.size === 0);
});

test("a long message that comes byte by byte ends the carrier before its pieces cost much", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox } = await rawAgent(server);
  let isOver = false;
  void inbox.closed.then(() => {
    isOver = true;
  });
  const message = frame({ opcode: 1, payload: Buffer.from(`{"type":"${"a".repeat(8_000)}"}`), mask: KEY });
  for (let at = 0; at < message.length && !isOver; at++) {
    socket.write(message.subarray(at, at + 1)); // a record of its own
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.match((await inbox.closed)?.message ?? "", /Too many buffered chunks/);
  socket.destroy();
});

test("unknown types and fields are ignored, pings are answered, the protocol's own pings too", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox, heard } = await rawAgent(server);
  socket.write(textFrame({ type: "later", reason: "of a later version" }, KEY));
  socket.write(textFrame({ type: "ping", extra: 1 }, KEY));
  socket.write(frame({ opcode: 9, payload: Buffer.from("abc"), mask: KEY }));
  socket.write(frame({ opcode: 2, payload: Buffer.from("payload"), mask: KEY }));
  await until(
    () =>
      inbox.text === "payload" && heard().includes('{"type":"pong"}') && heard().includes("\x8a\x03abc", 0, "latin1"),
  );
  const ended = Buffer.concat([Buffer.from([0x03, 0xe8]), Buffer.from(LINK_ENDED)]);
  socket.write(frame({ opcode: 8, payload: ended, mask: KEY }));
  assert.equal(await inbox.closed, undefined, "1000 with the peer's own words is a clean end");
});

test("a close code of a middlebox loses the carrier, one of the peer's own ends the link", async () => {
  await using server = await LinkServer.start();
  const words = async (payload: Buffer): Promise<Error | undefined> => {
    const { socket, inbox } = await rawAgent(server);
    socket.write(frame({ opcode: 8, payload, mask: KEY }));
    return inbox.closed;
  };
  for (const code of [1000, 1001, 1002, 1008, 1009, 1011, 1012, 1013, 4451, 4456]) {
    const loss = await words(Buffer.from([code >> 8, code & 0xff]));
    assert.ok(loss instanceof CarrierLost && loss.lossCause === "closed", `${code}`);
    assert.equal(loss.message, `the peer closed with ${code}`);
  }
  assert.ok((await words(Buffer.alloc(0))) instanceof CarrierLost, "a close frame without a code");
  for (const [code, reason] of [
    [1002, `${LINK_ENDED}: MASK must be set`],
    [4450, ""],
  ] as const) {
    const end = await words(Buffer.concat([Buffer.from([code >> 8, code & 0xff]), Buffer.from(reason)]));
    assert.ok(end !== undefined && !(end instanceof CarrierLost), `${code}`);
  }
});

test("a carrier whose peer has sent a close frame is over, although TCP stays open", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox } = await rawAgent(server);
  socket.pause(); // it neither reads the answer nor ends
  socket.write(frame({ opcode: 8, payload: Buffer.from([0x03, 0xe9]), mask: KEY }));
  const loss = await inbox.closed;
  assert.ok(loss instanceof CarrierLost && loss.lossCause === "closed", String(loss));
  assert.equal(server.upgraded[0]?.destroyed, false, "it was not TCP that told");
  await until(() => server.upgraded[0]?.destroyed === true);
  socket.destroy();
});

test("a flood of frames without payload ends the carrier, and is not read to its end", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox } = await rawAgent(server);
  const empty = Buffer.concat(Array.from({ length: 100_000 }, () => frame({ opcode: 2, mask: KEY })));
  let sent = 0;
  const more = (error?: Error | null): void => {
    if (error || socket.destroyed || sent >= 100) return;
    sent++;
    socket.write(empty, more);
  };
  more();
  assert.match((await inbox.closed)?.message ?? "", /more than 20000 frames a second carry no payload/);
  const upgraded = server.upgraded[0] ?? assert.fail();
  await until(() => upgraded.destroyed);
  assert.ok(upgraded.bytesRead < 10 * empty.length, `${upgraded.bytesRead} bytes were read`);
  socket.destroy();
});

test("a peer that asks and never reads is ended before its answers pile up", async () => {
  await using server = await LinkServer.start();
  const { socket, far, inbox } = await rawAgent(server);
  socket.pause();
  // Fill the path first, as a session would: what it may hold counts apart.
  for (let index = 0; index < 400; index++) far.write([Buffer.alloc(32 * 1024)], 32 * 1024);
  for (let sent = 0; inbox.closedCount === 0 && sent < 100; sent++) {
    far.sendControl({ type: "drain", retryAfterMs: 1, padding: "x".repeat(8_000) } as never);
  }
  assert.equal(inbox.closedCount, 1, "at once");
  assert.match((await inbox.closed)?.message ?? "", /reads no answers/);
  socket.destroy();
});

test("a question that comes together with a close frame is answered before the close", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox, heard } = await rawAgent(server);
  const close = frame({ opcode: 8, payload: Buffer.from([0x03, 0xe8]), mask: KEY });
  socket.write(Buffer.concat([textFrame({ type: "ping" }, KEY), close]));
  await inbox.closed;
  await until(() => heard().includes("\x88", 0, "latin1"));
  const pong = heard().indexOf('{"type":"pong"}');
  assert.ok(pong >= 0 && pong < heard().lastIndexOf("\x88", undefined, "latin1"));
});

test("random bytes behind the handshake never crash the server, and the carrier ends", async () => {
  await using server = await LinkServer.start();
  await Promise.all(
    Array.from({ length: 40 }, async (_, index) => {
      const { socket, inbox } = await rawAgent(server);
      const noise = randomBytes(2_000);
      // Half of them begin as a valid frame does, to get further in.
      if (index % 2 === 0) noise.set([index % 4 === 0 ? 0x82 : 0x81, 0xfe]);
      socket.end(noise);
      await inbox.closed;
      assert.deepEqual([inbox.closedCount, inbox.late], [1, 0]);
    }),
  );
  await until(() => server.sockets.size === 0);
});

test("pings that come in hundreds at once cost no connection, and the newest is answered", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox, heard } = await rawAgent(server);
  const pings = Array.from({ length: 500 }, (_, i) => frame({ opcode: 9, payload: Buffer.from(`p${i}`), mask: KEY }));
  socket.write(Buffer.concat([...pings, frame({ opcode: 2, payload: Buffer.from("payload"), mask: KEY })]));
  await until(() => inbox.text === "payload" && heard().includes("\x8a\x04p499", 0, "latin1"));
  assert.equal(inbox.closedCount, 0);
});

test("to a peer that pings and reads nothing, no more than one answer waits", async () => {
  await using server = await LinkServer.start();
  const { socket, inbox } = await rawAgent(server);
  socket.removeAllListeners("data");
  socket.pause();
  const ping = frame({ opcode: 9, payload: Buffer.alloc(125), mask: KEY });
  socket.write(Buffer.concat([...Array.from({ length: 19_000 }, () => ping), PAYLOAD]));
  await until(() => inbox.text === "payload");
  assert.ok((server.upgraded[0]?.writableLength ?? 0) < 1_000, `${server.upgraded[0]?.writableLength}`);
  assert.equal(inbox.closedCount, 0);
});

const PAYLOAD = frame({ opcode: 2, payload: Buffer.from("payload"), mask: KEY });
