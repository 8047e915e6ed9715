import assert from "node:assert/strict";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Server } from "yamux-js";
import { Flag, FrameType, header } from "../../shared/yamux/frame.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { waitFor } from "../harness/wait.ts";

const QUIET = { enableKeepAlive: false, logger: () => {} };
const KIB = 1024;
const SYN = header(FrameType.windowUpdate, Flag.syn, 1, 0);

/** A frame of stream 1. */
function data(text: string): Buffer {
  return Buffer.concat([header(FrameType.data, Flag.none, 1, text.length), Buffer.from(text)]);
}

/** A server of yamux-js, and the streams that its client opens. */
function theirServer(): { server: Server; streams: Duplex[] } {
  const streams: Duplex[] = [];
  const server = new Server((stream) => streams.push(stream), QUIET);
  server.resume();
  return { server, streams };
}

function ours(role: "client" | "server", carrier: Duplex, onStream: (stream: Stream) => void = () => {}): Session {
  return new Session(role, new DuplexTransport(carrier), { onStream, onClosed: () => {} });
}

describe("yamux-js, where it works: whole frames in each chunk", () => {
  test("it echoes what our client sends", async () => {
    const server = new Server((stream) => stream.on("data", (chunk) => stream.write(chunk)), QUIET);
    const session = ours("client", server);
    const stream = session.open();
    stream.write("one ");
    stream.write("two");
    let back = "";
    stream.on("data", (chunk) => {
      back += chunk;
    });
    await waitFor(() => back === "one two");
    stream.on("error", () => {});
    session.destroy();
  });

  test("our server echoes what it sends, a megabyte with its windows", async () => {
    const client = new Client(QUIET);
    const session = ours("server", client, (stream) => {
      stream.on("error", () => {});
      stream.pipe(stream);
    });
    const stream = client.open();
    let back = 0;
    stream.on("data", (chunk: Buffer) => {
      back += chunk.length;
    });
    stream.write(Buffer.alloc(1024 * KIB, "x"));
    await waitFor(() => back === 1024 * KIB);
    session.destroy();
  });
});

/** Each is a reason of docs/decisions/0001-own-yamux.md; a version that mends one turns its test red. */
describe("yamux-js 0.2.0, where it does not work", () => {
  test("a data frame that is split over two chunks loses bytes", async () => {
    const { server, streams } = theirServer();
    server.write(SYN);
    const frame = data("hello world");
    server.write(frame.subarray(0, 17));
    server.write(frame.subarray(17));
    server.write(data("next"));
    await sleep(20);
    const received = String(streams[0]?.read() ?? "");
    assert.ok(!received.includes("hello") && received !== "hello worldnext", `received ${JSON.stringify(received)}`);
  });

  test("a header that is split over two chunks loses bytes", async () => {
    const { server, streams } = theirServer();
    server.write(SYN);
    const frame = data("hello world");
    server.on("error", () => {});
    server.write(frame.subarray(0, 5));
    server.write(frame.subarray(5));
    await sleep(20);
    assert.notEqual(String(streams[0]?.read() ?? ""), "hello world");
  });

  test("frames behind a go-away in one chunk are lost", async () => {
    const { server, streams } = theirServer();
    server.write(SYN);
    server.write(Buffer.concat([header(FrameType.goAway, Flag.none, 0, 0), data("hello")]));
    server.write(data("again"));
    await sleep(20);
    assert.equal(String(streams[0]?.read() ?? ""), "again");
  });

  test("credit is given on receipt: a reader that never reads is sent everything", async () => {
    const { server, streams } = theirServer();
    const session = ours("client", server);
    const stream = session.open();
    stream.on("error", () => {});
    stream.write(Buffer.alloc(8 * 1024 * KIB));
    await waitFor(() => streams[0]?.readableLength === 8 * 1024 * KIB);
    session.destroy();
  });

  test("a carrier that takes nothing holds no writer back", async () => {
    const client = new Client(QUIET);
    let written = 0;
    for (let count = 0; count < 40; count++) {
      client.open().write(Buffer.alloc(200 * KIB), () => {
        written += 200 * KIB;
      });
    }
    await sleep(20);
    assert.equal(written, 8000 * KIB);
    assert.ok(client.readableLength > 8000 * KIB, "all of it waits in memory");
  });

  test("a writer out of window looks for credit every 100 ms", async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const turns = async () => {
      for (let count = 0; count < 5; count++) await new Promise(setImmediate);
    };
    const client = new Client(QUIET);
    let sent = 0;
    client.on("data", (chunk: Buffer) => {
      sent += chunk.length;
    });
    client.open().write(Buffer.alloc(256 * KIB + 10));
    await turns();
    const before = sent;
    client.write(header(FrameType.windowUpdate, Flag.ack, 1, 1000));
    await turns();
    assert.equal(sent, before, "the credit is there and nothing goes");
    t.mock.timers.tick(99);
    await turns();
    assert.equal(sent, before);
    t.mock.timers.tick(1);
    await turns();
    assert.equal(sent, before + 22);
  });

  test("there is no draining: closing a session destroys its open streams", async () => {
    const { server, streams } = theirServer();
    server.write(SYN);
    await waitFor(() => streams.length === 1);
    server.close();
    await once(streams[0] as Duplex, "close");
    assert.equal(streams[0]?.destroyed, true);
  });

  test("a FIN is not an end, and an end is not a FIN: there is no half-close", async () => {
    const { server, streams } = theirServer();
    const frames: Buffer[] = [];
    server.on("data", (chunk: Buffer) => frames.push(chunk));
    server.write(SYN);
    server.write(header(FrameType.windowUpdate, Flag.fin, 1, 0));
    await waitFor(() => streams.length === 1);
    const stream = streams[0] as Duplex;
    let ended = false;
    stream.on("end", () => {
      ended = true;
    });
    stream.resume();
    stream.end("x");
    await sleep(30);
    assert.equal(ended, false);
    assert.ok(frames.length > 0 && frames.every((frame) => (frame.readUInt16BE(2) & Flag.fin) === 0));
  });
});
