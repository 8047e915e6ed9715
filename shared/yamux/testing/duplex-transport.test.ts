import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { DuplexTransport } from "./duplex-transport.ts";

/** A Duplex that answers every write from inside it, as one end of a `duplexPair()` can. */
function answering(answer: (bytes: Buffer) => Buffer | undefined): Duplex {
  return new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      const bytes = answer(chunk);
      if (bytes !== undefined) this.push(bytes);
      done();
    },
  });
}

test("bytes that arrive while others are being delivered come after them, never in between", async () => {
  const events: string[] = [];
  const duplex = answering((bytes) => (bytes.toString() === "ask" ? Buffer.from("answer") : undefined));
  const transport = new DuplexTransport(duplex);
  transport.start({
    onBytes: (chunk) => {
      events.push(`begin ${chunk}`);
      if (chunk.toString() === "start") transport.write([Buffer.from("ask")], 3);
      events.push(`end ${chunk}`);
    },
    onWritable: () => {},
    onClosed: () => {},
  });
  await new Promise(setImmediate);
  duplex.push(Buffer.from("start"));
  await new Promise(setImmediate);
  assert.deepEqual(events, ["begin start", "end start", "begin answer", "end answer"]);
});

test("what the duplex has not taken is pending; the end of the duplex is reported once, with its error", async () => {
  const held: Array<() => void> = [];
  const duplex = new Duplex({ read() {}, write: (_chunk, _encoding, done) => held.push(done), highWaterMark: 1 });
  const transport = new DuplexTransport(duplex);
  const told: Array<Error | undefined> = [];
  let writable = 0;
  transport.start({ onBytes: () => {}, onWritable: () => writable++, onClosed: (reason) => told.push(reason) });
  transport.write([Buffer.from("ab"), Buffer.from("c")], 3);
  assert.equal(transport.pendingBytes, 3);
  for (let done = held.shift(); done !== undefined; done = held.shift()) {
    done();
    await new Promise(setImmediate);
  }
  assert.deepEqual([transport.pendingBytes, writable], [0, 1]);
  transport.destroy(new Error("cut"));
  await new Promise(setImmediate);
  transport.write([Buffer.from("late")], 4);
  assert.deepEqual(
    told.map((reason) => reason?.message),
    ["cut"],
  );
  assert.equal(transport.pendingBytes, 0);
});
