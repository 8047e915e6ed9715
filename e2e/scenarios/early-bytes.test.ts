import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { dialListener } from "../harness/caller.ts";
import { ESTABLISHED } from "../harness/first-reads.ts";
import { Payload } from "../harness/payload.ts";
import { within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const SIZES = [0, 1, 1000, 16 * 1024, 64 * 1024, 300 * 1024];
const PIECES = [1, 2, 3, 7];

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, bytes sent before the 200 reach the target once and in order, however they are split`, async () => {
    await using world = await startWorld({ targets: ["sink"] });
    const { sink } = world.targets;
    const request = Buffer.from(`CONNECT ${sink.address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    for (const pieces of PIECES) {
      for (const size of SIZES) {
        const what = `${size} bytes in ${pieces} pieces`;
        const payload = new Payload(size);
        const socket = dialListener(world.listener(via));
        const answered = answerThenEnd(socket);
        await writeInPieces(socket, Buffer.concat([request, payload.whole(size)]), pieces);
        assert.equal(await within(answered, 10_000, `the end, ${what}`), ESTABLISHED);
        const taken = sink.connections.at(-1);
        assert.equal(await taken?.ended, "fin");
        assert.deepEqual([taken?.bytes, taken?.sha256()], [size, payload.sha256(size)], what);
      }
    }
    assert.equal(sink.accepted, PIECES.length * SIZES.length);
  });
}

/** Ends as soon as the 200 is there; resolves with all that was read when the other side has ended, too. */
async function answerThenEnd(socket: Socket): Promise<string> {
  let answer = "";
  socket.setEncoding("latin1").on("data", (text: string) => {
    answer += text;
    if (answer.endsWith("\r\n\r\n")) socket.end();
  });
  await once(socket, "end");
  return answer;
}

/** The first cut is inside the request, so that its end comes in the middle of a read. */
async function writeInPieces(socket: Socket, bytes: Buffer, pieces: number): Promise<void> {
  const step = (bytes.length - 30) / (pieces - 1);
  let from = 0;
  for (let i = 0; i < pieces; i++) {
    const to = i === pieces - 1 ? bytes.length : Math.floor(30 + i * step);
    socket.write(bytes.subarray(from, to));
    from = to;
    await new Promise(setImmediate);
  }
}
