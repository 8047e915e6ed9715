import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer } from "node:http2";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { listening } from "../basics/testing/wait.ts";
import { writeStringsAsBuffers } from "./http2.ts";

test("strings that are written together with buffers arrive as they are", async (t) => {
  const server = createServer();
  const port = await listening(t, server);
  const session = connect(`http://127.0.0.1:${port}`);
  t.after(() => session.destroy());
  const taken = once(server, "stream").then(async ([stream]) => {
    const bytes = await buffer(stream);
    stream.respond({ ":status": 200 }, { endStream: true });
    return bytes;
  });
  const stream = session.request({ ":method": "POST" });
  writeStringsAsBuffers(stream);
  const pieces = Array.from({ length: 300 }, (_, at) => `piece ${at} `.padEnd(1_000, "é"));
  stream.cork();
  for (const piece of pieces) {
    stream.write(piece, "latin1");
    stream.write(Buffer.from("|"));
  }
  stream.uncork();
  let isWritten = false;
  stream.write("the end", () => (isWritten = true));
  stream.end();
  assert.equal((await taken).toString("latin1"), `${pieces.map((piece) => `${piece}|`).join("")}the end`);
  assert.equal(isWritten, true);
});
