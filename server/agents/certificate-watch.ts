export interface CertificateWatchOwner {
  /** The agent shall connect again, with the certificate that it has by now. */
  onAsk(reason: string): void;
  /** The certificate has expired, and the agent has shown no valid one. */
  onExpired(reason: string): void;
}

/** How long before the end the agent is asked, ms: a file that is renewed at the last minute is in time. */
const NOTICE_MS = 60_000;
/** With less time left the agent is not asked again, ms: it spreads its new connections over 2 s. */
const TOO_LATE_MS = 4_000;
/**
 * The longest timer, ms. The clock, by which a certificate ends, can be set; and Node's timers take at most 24 days.
 */
const CHECK_MS = 60_000;

/**
 * Watches the end of an agent's certificate during its tunnel (decision 0022). The agent is asked for a new one in
 * time, and again whenever half of the time that is left has passed.
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

  /** The agent has connected again with a valid certificate. */
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
    this.#timer = setTimeout(this.#onTimer, Math.min(Math.max(0, next), CHECK_MS)).unref();
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
