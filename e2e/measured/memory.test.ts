import assert from "node:assert/strict";
import { test } from "node:test";
import { createSite } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { atFull } from "../harness/counts.ts";
import { heldBytes, INSPECTED } from "../harness/inspector.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { sourceTarget } from "../harness/targets/plain.ts";
import { standing, waitFor } from "../harness/wait.ts";

const READERS = atFull(1_000, 300);
const MIB = 1024 * 1024;
/**
 * A window for each reader, the session's budget, and room for the rest; and what the splice holds for
 * it beside the window, of which the kernel has taken most, unless the machine is so busy that windows grow first.
 */
const LIMIT = READERS * (64 + 64) * 1024 + 64 * MIB + 32 * MIB;
/** In RSS, what V8 has not collected yet (docs/decisions/0004) and what malloc has not given back come on top. */
const NOT_GIVEN_BACK = 64 * MIB;

test("readers that stop cost a window each and the budget, in both processes, and give it back", async () => {
  using site = await createSite();
  await using server = await site.startServer({}, { nodeArgs: INSPECTED });
  await using agent = await site.startAgent({}, { nodeArgs: INSPECTED });
  await using target = await sourceTarget();
  const sides: readonly ManagedProcess[] = [server, agent];
  await stalledReaders(site.listener("uds"), target.address, 100); // code is compiled, the heap has its working size
  const base = await Promise.all(sides.map(heldBytes));
  const baseRss = sides.map((side) => side.rssBytes());

  for (const round of [1, 2]) {
    const { peaks, held } = await stalledReaders(site.listener("uds"), target.address, READERS, sides);
    for (const [index, side] of sides.entries()) {
      const rss = (peaks[index] ?? 0) - (baseRss[index] ?? 0);
      const holds = total(held[index]) - total(base[index]);
      assert.ok(holds <= LIMIT, `round ${round}: ${side.name} holds ${Math.round(holds / MIB)} MiB more`);
      assert.ok(rss <= LIMIT + NOT_GIVEN_BACK, `round ${round}: ${side.name} grew by ${Math.round(rss / MIB)} MiB`);
    }
    await waitFor(() => target.open === 0, { deadlineMs: 20_000, what: "the targets' ends" });
    for (const [index, side] of sides.entries()) {
      const isGivenBack = async () => (await heldBytes(side)).buffers - (base[index]?.buffers ?? 0) < 8 * MIB;
      await waitFor(isGivenBack, { deadlineMs: 20_000, what: `round ${round}: ${side.name} to give buffers back` });
    }
  }
});

const total = ({ heap, buffers } = { heap: 0, buffers: 0 }): number => heap + buffers;

/**
 * Opens readers that take nothing, waits until nothing moves any more, and lets them go. Returns each side's peak of
 * RSS, and what it held then.
 */
async function stalledReaders(
  listener: ReturnType<Awaited<ReturnType<typeof createSite>>["listener"]>,
  address: string,
  count: number,
  sides: readonly ManagedProcess[] = [],
): Promise<{ readonly peaks: readonly number[]; readonly held: readonly Awaited<ReturnType<typeof heldBytes>>[] }> {
  const peaks = sides.map(() => 0);
  const look = (): string => {
    for (const [index, side] of sides.entries()) peaks[index] = Math.max(peaks[index] ?? 0, side.rssBytes());
    return sides.map((side) => Math.round(side.cpuSeconds() * 10)).join();
  };
  const watch = setInterval(look, 50);
  const readers = [];
  for (let opened = 0; opened < count; opened += 50) {
    const some = Array.from({ length: 50 }, async () => {
      const reader = await connectThrough(listener, address, { deadlineMs: 20_000 });
      reader.socket.pause();
      return reader;
    });
    readers.push(...(await Promise.all(some)));
  }
  await standing(look, { everyMs: 500 });
  clearInterval(watch);
  const held = await Promise.all(sides.map(heldBytes));
  for (const { socket } of readers) socket.destroy();
  return { peaks, held };
}
