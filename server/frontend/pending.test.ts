import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { PendingCaller } from "./pending.ts";

/** What it is given to write is never done. */
class Unwritable extends Duplex {
  readonly given: string[] = [];

  override _read(): void {}

  override _write(chunk: Buffer): void {
    this.given.push(chunk.toString("latin1"));
  }
}

test("without a gap nothing waits for the 200 to be done: of a caller that is gone it may never be", async () => {
  const socket = new Unwritable();
  const pending = new PendingCaller(socket);
  await pending.establish(0);
  pending.release();
  assert.deepEqual(socket.given, ["HTTP/1.1 200 Connection Established\r\n\r\n"]);
  socket.destroy();
});
