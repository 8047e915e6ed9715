import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { dialListener } from "../harness/caller.ts";
import { atFull } from "../harness/counts.ts";
import { ESTABLISHED, firstReads } from "../harness/first-reads.ts";
import { Payload } from "../harness/payload.ts";
import { within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const BANNER = "220 culvert banner\r\n";

for (const [via, count] of [
  ["uds", atFull(2000)],
  ["tls", atFull(500)],
] as const) {
  test(`over ${via}, the read that brings the 200 brings nothing else, also when the target speaks first`, async () => {
    await using world = await startWorld({ targets: ["banner"] });
    const listener = world.listener(via);
    const { address: target } = world.targets.banner;
    const { asleep, ...reads } = await firstReads({ listener, target, count, atOnce: 4, banner: BANNER });
    assert.deepEqual(reads, { first: { [ESTABLISHED]: count }, rest: { [BANNER]: count } });
    assert.ok(asleep <= count / 20, `the machine is too busy to tell: the reader slept ${asleep} times`);
  });
}

const HEAD_SIZES = [1, 1000, 16 * 1024, 64 * 1024, 300 * 1024];

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, bytes sent with the CONNECT, and after it before the 200, reach the target once and in order`, async () => {
    await using world = await startWorld({ targets: ["sink"] });
    const { sink } = world.targets;
    for (const pieces of [1, 2, 3, 7]) {
      for (const size of HEAD_SIZES) {
        const payload = new Payload(size);
        const socket = dialListener(world.listener(via));
        const request = Buffer.from(`CONNECT ${sink.address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
        const all = Buffer.concat([request, ...wholeOf(payload, size)]);
        // The first cut is inside the request, so that the header ends in the middle of a read.
        const cuts = Array.from({ length: pieces - 1 }, (_, i) =>
          i === 0 ? 30 : Math.floor((all.length * i) / pieces),
        );
        let from = 0;
        for (const to of [...cuts.filter((cut) => cut < all.length), all.length]) {
          socket.write(all.subarray(from, to));
          from = to;
          await new Promise(setImmediate);
        }
        let answer = "";
        socket.setEncoding("latin1").on("data", (text: string) => {
          answer += text;
          if (answer === ESTABLISHED) socket.end();
        });
        await within(once(socket, "end"), 10_000, `the end, ${size} bytes in ${pieces} pieces (${answer})`);
        assert.equal(answer, ESTABLISHED);
        const taken = sink.connections.at(-1);
        assert.equal(await taken?.ended, "fin");
        assert.deepEqual([taken?.bytes, taken?.sha256()], [size, payload.sha256(size)], `${size} in ${pieces} pieces`);
      }
    }
    assert.equal(sink.accepted, 4 * HEAD_SIZES.length);
  });
}

function wholeOf(payload: Payload, bytes: number): Buffer[] {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes; at += parts.at(-1)?.length ?? 0) parts.push(payload.at(at, bytes - at));
  return parts;
}
