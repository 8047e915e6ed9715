import type { Duplex } from "node:stream";
import { Cancellation, untilAborted } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeCarrier } from "../../shared/wire/peer-heads.ts";
import type { CarriedFacts, LinkOwners } from "../tunnels/link-owners.ts";
import type { PeerLink } from "./peer-link.ts";
import { openByHead } from "./peer-opening.ts";

/** Maximum time for the owner's answer, ms. Its caller, which knows the grace of the link, cancels earlier. */
const MAX_MS = 10_000;

/** The servers that have issued the links of other servers, on the links to them. */
export class PeerOwners implements LinkOwners {
  readonly #linkTo: (serverId: string) => Promise<PeerLink>;
  readonly #ackTimeoutMs: number;

  constructor(linkTo: (serverId: string) => Promise<PeerLink>, ackTimeoutMs: number) {
    this.#linkTo = linkTo;
    this.#ackTimeoutMs = ackTimeoutMs;
  }

  async open(
    serverId: string,
    { cluster, source, chain }: CarriedFacts,
    signal: AbortSignal,
    memory: MemoryAccount,
  ): Promise<Duplex> {
    const link = await untilAborted(this.#linkTo(serverId), signal);
    const cancellation = new Cancellation<CulvertError>();
    const onAbort = (): void => cancellation.cancel(new CulvertError("peer_lost", (signal.reason as Error).message));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    const head = encodeCarrier({ cluster, ...source, chain: chain.map(({ length }) => length) });
    try {
      const options = { cancellation, ackTimeoutMs: this.#ackTimeoutMs, memory };
      const { stream } = await openByHead(link, [head, ...chain], MAX_MS, options);
      link.endWhenUnreachable(stream);
      return stream;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }
}
