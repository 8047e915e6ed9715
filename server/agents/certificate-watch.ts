/** Who holds the tunnel. */
export interface CertificateWatchOwner {
  /** Ask the agent for a new connection, and so for the certificate that it has by now. */
  onAsk(reason: string): void;
  /** The certificate has expired, and none that is still valid has come in its place. */
  onExpired(reason: string): void;
}

/** From so long before the end on the agent is asked, ms: files that are renewed at the last minute are in time. */
const NOTICE_MS = 60_000;
/** An agent spreads its new connections over 2 s; with less time than twice that, asking once more is of no use, ms. */
const TOO_LATE_MS = 4_000;
/**
 * The longest wait, ms. A timer counts the time that passes and a certificate ends by the clock, which can be set; and Node's
 * timers take no more than 24 days.
 */
const LOOK_MS = 60_000;

/**
 * Watches over the certificate by which an agent has proved itself, from its first connection to the end of its tunnel
 * (decision 0022). The agent is asked in time, and again whenever half of the time that is left has passed.
 */
export class CertificateWatch {
  readonly #owner: CertificateWatchOwner;
  #notAfter: Date;
  #timer: NodeJS.Timeout | undefined;

  constructor(notAfter: Date, owner: CertificateWatchOwner) {
    this.#owner = owner;
    this.#notAfter = notAfter;
    this.#wait();
  }

  /** The agent has proved itself once more, by this certificate or another one. */
  renewed(notAfter: Date): void {
    this.#notAfter = notAfter;
    this.#wait();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  get #leftMs(): number {
    return this.#notAfter.getTime() - Date.now();
  }

  #wait(): void {
    clearTimeout(this.#timer);
    const left = this.#leftMs;
    const next = left > TOO_LATE_MS ? Math.max(left - NOTICE_MS, left / 2) : left;
    this.#timer = setTimeout(this.#onTimer, Math.min(Math.max(0, next), LOOK_MS)).unref();
  }

  readonly #onTimer = (): void => {
    const left = this.#leftMs;
    const end = this.#notAfter.toISOString().replace(".000", "");
    if (left <= 0) {
      this.#owner.onExpired(`the agent's certificate expired on ${end}`);
      return;
    }
    this.#wait();
    if (left > TOO_LATE_MS && left <= NOTICE_MS) this.#owner.onAsk(`the agent's certificate expires on ${end}`);
  };
}
