import type { LinkCarrier } from "./carrier-cursor.ts";
import { Link, type LinkOptions, type LinkWatcher } from "./link.ts";

/** Who is asked for a new carrier has peace for so long, ms: each costs both ends two handshakes and more. */
const ASKED_EVERY_MS = 5_000;

/**
 * A link under inner TLS: somebody in between may read and write what its carriers say. Payload is proved inside, and with
 * pings, acks and ends nobody can do more than with the cable; of all other words none is believed that would last longer
 * than the carrier. `drain` is said by the session's go-away, inside; `rotate` is heard, now and then.
 *
 * It has no name, and dies with its carrier, until `settle`.
 */
export class TappedLink extends Link {
  readonly #everyMs: number;
  #heardAt = Number.NEGATIVE_INFINITY;
  #later: NodeJS.Timeout | undefined;

  constructor(
    remote: string,
    carrier: LinkCarrier,
    options: Omit<LinkOptions, "graceMs">,
    askedEveryMs = ASKED_EVERY_MS,
  ) {
    super("", remote, carrier, { ...options, graceMs: 0 });
    this.#everyMs = askedEveryMs;
  }

  override watch(watcher: LinkWatcher): void {
    super.watch({
      ...watcher,
      onControl: (message) => {
        if (message.type === "rotate") this.#hear(() => watcher.onControl?.(message));
      },
      onClosed: () => {
        clearTimeout(this.#later);
        watcher.onClosed?.();
      },
    });
  }

  /** Of those that come too soon the last is heard, later. */
  #hear(tell: () => void): void {
    clearTimeout(this.#later);
    const waitMs = this.#heardAt + this.#everyMs - performance.now();
    if (waitMs > 0) {
      this.#later = setTimeout(() => this.#hear(tell), waitMs).unref();
      return;
    }
    this.#heardAt = performance.now();
    tell();
  }
}
