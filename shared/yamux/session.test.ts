import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { DuplexTransport } from "./duplex-transport.ts";
import type { SessionOptions } from "./options.ts";
import { Session, type SessionHandler } from "./session.ts";
import type { Stream } from "./stream.ts";

interface End {
  readonly session: Session;
  readonly accepted: Stream[];
  readonly closed: Promise<Error | undefined>;
}

function end(role: "client" | "server", transport: DuplexTransport, options: Partial<SessionOptions>): End {
  const accepted: Stream[] = [];
  let onClosed: SessionHandler["onClosed"] = () => {};
  const closed = new Promise<Error | undefined>((resolve) => {
    onClosed = resolve;
  });
  const handler: SessionHandler = {
    onStream: (stream) => {
      stream.on("error", () => {});
      accepted.push(stream);
    },
    onClosed: (reason) => onClosed(reason),
  };
  return { session: new Session(role, transport, handler, options), accepted, closed };
}

function pair(options: Partial<SessionOptions> = {}): { client: End; server: End } {
  const [left, right] = duplexPair();
  return {
    client: end("client", new DuplexTransport(left), options),
    server: end("server", new DuplexTransport(right), options),
  };
}

/** Reads to the end without ending the other direction, as a splice would. */
async function readAll(stream: Stream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  await once(stream, "end");
  return Buffer.concat(chunks);
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `not within 5 s: ${condition}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("bytes written at one end of a stream are read at the other, both ways, and the ends are seen", async () => {
  const { client, server } = pair();
  const near = client.session.open(Buffer.from("head"));
  near.end("up");
  await until(() => server.accepted.length === 1);
  const far = server.accepted[0] as Stream;
  far.end("down");
  assert.equal((await readAll(far)).toString(), "headup");
  assert.equal((await readAll(near)).toString(), "down");
  await until(() => client.session.streamCount === 0 && server.session.streamCount === 0);
});

test("a megabyte passes whole although it is far more than the window", async () => {
  const { client, server } = pair({ initialWindow: 4096, maxWindow: 4096 });
  const near = client.session.open();
  const sent = Buffer.alloc(1024 * 1024, "culvert");
  near.end(sent);
  await until(() => server.accepted.length === 1);
  assert.ok((await readAll(server.accepted[0] as Stream)).equals(sent));
});

test("a reader that stops holds its writer at one window, and only that stream", async () => {
  const { client, server } = pair({ initialWindow: 65536, maxWindow: 65536 });
  const stuck = client.session.open();
  stuck.on("error", () => {});
  stuck.write(Buffer.alloc(1024 * 1024));
  const lively = client.session.open();
  lively.end("through");
  await until(() => server.accepted.length === 2);
  assert.equal((await readAll(server.accepted[1] as Stream)).toString(), "through");
  assert.equal((server.accepted[0] as Stream).unread, 65536);
  assert.equal(server.session.bufferedBytes, 65536);
  stuck.destroy();
  await until(() => server.session.bufferedBytes === 0);
});

test("destroying a stream resets it at the other end with ECONNRESET", async () => {
  const { client, server } = pair();
  const near = client.session.open();
  await until(() => server.accepted.length === 1);
  const failed = once(server.accepted[0] as Stream, "error");
  near.destroy();
  const [error] = await failed;
  assert.equal((error as NodeJS.ErrnoException).code, "ECONNRESET");
});

test("a session that drains refuses new streams at both ends and lets open ones finish", async () => {
  const { client, server } = pair();
  const near = client.session.open();
  await until(() => server.accepted.length === 1);
  server.session.drain();
  await until(() => client.session.draining);
  assert.throws(() => client.session.open(), { reason: "go_away" });
  near.end("still here");
  assert.equal((await readAll(server.accepted[0] as Stream)).toString(), "still here");
});

test("streams of a session whose transport is cut are destroyed with ESESSION", async () => {
  const { client, server } = pair();
  const near = client.session.open();
  await until(() => server.accepted.length === 1);
  const failed = once(near, "error");
  client.session.destroy(new Error("cut"));
  assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ESESSION");
  assert.equal((await client.closed)?.message, "cut");
});

test("a ping measures a round trip and is rejected when the session ends first", async () => {
  const { client, server } = pair();
  assert.ok((await client.session.ping()) >= 0);
  const lost = client.session.ping();
  server.session.destroy();
  client.session.destroy();
  await assert.rejects(lost, { reason: "closed" });
});

test("bytes that were read and put back give credit once", async () => {
  const { client, server } = pair({ initialWindow: 1000, maxWindow: 1000 });
  const near = client.session.open();
  near.end(Buffer.alloc(10_000, "x"));
  await until(() => server.accepted.length === 1);
  const far = server.accepted[0] as Stream;
  await once(far, "readable");
  for (let turn = 0; turn < 5; turn++) far.unshift(far.read() as Buffer);
  assert.equal((await readAll(far)).length, 10_000);
});
