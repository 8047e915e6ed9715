import type { Cut } from "../harness/relayed-pair.ts";
import { every } from "./pause.ts";
import type { Site } from "./site.ts";

const EVERY_MS = 5_000;
const HOW: readonly Cut[] = ["fin", "rst", "silence"];

/** Cuts the carriers of all relays, in turn by FIN, by a reset and by silence, until the signal is aborted. */
export async function cutCarriers({ clusters }: Site, signal: AbortSignal): Promise<void> {
  let turn = 0;
  await every(EVERY_MS, signal, () => {
    const how = HOW[turn++ % HOW.length] as Cut;
    for (const { relay } of clusters) relay.cut(how);
  });
}
