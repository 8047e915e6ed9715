import type { Figures } from "./figures.ts";
import type { Tally } from "./tally.ts";

const MOST_GROWTH = 0.15;
const MIB = 1024 * 1024;

/** Figures that are higher at the end than after the warm-up, as sentences. */
export function growthOf(before: readonly Figures[], after: readonly Figures[]): string[] {
  return after.flatMap((now, index) => {
    const then = before[index];
    if (then === undefined || then.name !== now.name) throw new Error(`there are no earlier figures of ${now.name}`);
    const found: string[] = [];
    if (now.descriptors > then.descriptors) {
      found.push(`The ${now.name} has ${now.descriptors} descriptors; after the warm-up it had ${then.descriptors}.`);
    }
    // RSS has what nobody holds any more in it as well: what is held shows a leak long before.
    if (now.heldBytes > then.heldBytes * (1 + MOST_GROWTH)) {
      found.push(
        `The ${now.name} holds ${mib(now.heldBytes)} of heap and buffers; after the warm-up it held ${mib(then.heldBytes)}.`,
      );
    }
    if (now.rssBytes > then.rssBytes * (1 + MOST_GROWTH)) {
      found.push(`The ${now.name}'s RSS is ${mib(now.rssBytes)}; after the warm-up it was ${mib(then.rssBytes)}.`);
    }
    return found;
  });
}

/** Losses of the traffic, and kinds of traffic that did not happen: a run without them proves nothing. */
export function lossesOf(tally: Tally, kinds: readonly string[]): string[] {
  const more = tally.faultCount - tally.faults.length;
  return [
    ...tally.faults.map((fault) => `Lost: ${fault}.`),
    ...(more > 0 ? [`${more} more were lost.`] : []),
    ...kinds
      .filter((kind) => !tally.ended.has(kind))
      .map((kind) => `No connection of the kind "${kind}" came to its end.`),
    ...(tally.changes === 0 ? ["No certificate or document was changed."] : []),
  ];
}

/** For a line that has many of them. */
export function wholeMib(bytes: number): string {
  return `${Math.round(bytes / MIB)} MiB`;
}

/** Fine enough to compare. */
export function mib(bytes: number): string {
  return `${(bytes / MIB).toFixed(1)} MiB`;
}
