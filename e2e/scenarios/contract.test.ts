import assert from "node:assert/strict";
import { test } from "node:test";
import { atFull } from "../harness/counts.ts";
import { ESTABLISHED, firstReads } from "../harness/first-reads.ts";
import { startWorld } from "../harness/world.ts";

const BANNER = "220 culvert banner\r\n";

for (const [via, count] of [
  ["uds", atFull(2000)],
  ["tls", atFull(500)],
] as const) {
  test(`over ${via}, the read that brings the 200 brings nothing else, also when the target speaks first`, async (t) => {
    await using world = await startWorld({ targets: ["banner"] });
    const listener = world.listener(via);
    const { address: target } = world.targets.banner;
    const { asleep, ...reads } = await firstReads({ listener, target, count, atOnce: 16, banner: BANNER });
    assert.deepEqual(reads, { first: { [ESTABLISHED]: count }, rest: { [BANNER]: count } });
    t.diagnostic(`the reader slept ${asleep} times, and asked again`);
  });
}
