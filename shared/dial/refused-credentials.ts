import { createHash } from "node:crypto";
import { RecentMap } from "../basics/collections.ts";
import { deferred, untilAborted } from "../basics/promises.ts";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { RouteFault, type RouteFaultCode } from "./fault.ts";

/** A directory locks an account after about five wrong passwords in half an hour. These waits allow four. */
const FIRST_WAIT_MS = 5 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;
const MAX_IN_HALF_AN_HOUR = 4;
/** After so many failures no other proxy gets the credentials, because all proxies may ask one directory. */
const MAX_BEFORE_WAIT = 3;
/**
 * Time that accepted credentials wait for another attempt, ms. A refusal comes sooner, but a proxy accepts only after
 * it has dialled, and a target that does not answer must not delay the others.
 */
const ACCEPTED_WAIT_MS = 1_000;
/** Maximum number of records, and of proxies in each: a PAC script may name new proxies without end. */
const MAX_REMEMBERED = 16;

const REFUSED = "proxy_auth_refused";

/** What an operator can do before the wait is over, by the source of the credentials. */
const CURES = {
  file: "a new one in --proxy-credentials-file is sent at once",
  url: "after a restart a new one in the proxy's URL is sent at once",
} as const;
export type CredentialsSource = keyof typeof CURES;

/** Follows what one attempt sends to a proxy, and how the proxy answers. */
export interface LoginObserver {
  /** The credentials are being sent. */
  onSent(): void;
  /** The proxy has accepted them. If not `isCertain`, it has only answered without asking for a login. */
  onAccepted(isCertain: boolean): void;
  /** May the credentials be sent again in this attempt, if the proxy has neither accepted nor refused them? */
  mayResend(): boolean;
}

/**
 * Keeps a wrong proxy password from locking a directory account (decision 0030). A pair of user and password that was
 * refused waits before it is sent again, twice as long after each failure, and one attempt at a time sends it. Another
 * pair is sent at once.
 */
export class RefusedCredentials {
  readonly #records = new RecentMap<string, LoginRecord>(MAX_REMEMBERED);
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  /**
   * The login of one attempt at a proxy (`formatProxy`). `onTrial` is called when it sends credentials that the proxy
   * has not accepted before.
   */
  attempt(proxy: string, signal: AbortSignal, onTrial: () => void = () => {}): LoginAttempt {
    return new LoginAttempt(proxy, signal, { recordOf: (credentials) => this.#recordOf(credentials), onTrial });
  }

  #recordOf({ user, password }: ProxyCredentials): LoginRecord {
    // A hash, so that a password that was replaced does not stay in memory.
    const key = createHash("sha256")
      .update(JSON.stringify([user, password]))
      .digest("hex");
    const record = this.#records.get(key) ?? new LoginRecord(this.#now);
    this.#records.set(key, record);
    return record;
  }
}

/** What is known about one pair of user and password. */
class LoginRecord {
  /** The attempt that is sending them. It never rejects. */
  pending: Promise<void> | undefined;
  readonly #now: () => number;
  /** The last answer of each proxy. A proxy that has accepted them keeps this answer until it refuses them. */
  readonly #answers = new RecentMap<string, "accepted" | RouteFaultCode>(MAX_REMEMBERED);
  /** How often they were sent and not accepted, by any proxy, since the last half an hour without a failure. */
  #failures = 0;
  #failedAtMs = 0;
  #waitUntilMs = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  isAcceptedBy(proxy: string): boolean {
    return this.#answers.get(proxy) === "accepted";
  }

  /** May they be sent once more by an attempt that has sent them so many `times`? */
  mayResend(times: number): boolean {
    return this.#recentFailures + times < MAX_IN_HALF_AN_HOUR;
  }

  /** Throws a `RouteFault` while they must not be sent to this proxy. */
  check(proxy: string, source: CredentialsSource): void {
    const answer = this.#answers.get(proxy);
    const now = this.#now();
    if (answer === "accepted" || now >= this.#waitUntilMs) return;
    if (answer === undefined && this.#recentFailures < MAX_BEFORE_WAIT) return;
    const ago = `${minutes(now - this.#failedAtMs)} ago`;
    const why =
      answer === REFUSED
        ? `refused the password ${ago}`
        : answer === undefined
          ? `gets no password, because other proxies did not accept it ${ago}`
          : `did not answer the password ${ago} (${answer})`;
    const message = `the proxy ${proxy} ${why}; to avoid an account lockout it is sent again in ${minutes(this.#waitUntilMs - now)}: ${CURES[source]}`;
    throw new RouteFault(answer ?? REFUSED, message, { at: proxy });
  }

  accepted(proxy: string, isCertain: boolean): void {
    // A balancer's 503 does not withdraw a refusal.
    if (!isCertain && this.#answers.get(proxy) === REFUSED) return;
    this.#answers.set(proxy, "accepted");
    if ([...this.#answers.values()].every((answer) => answer === "accepted")) this.#failures = 0;
  }

  /** They were sent so many `times`, and the attempt ended with this fault. */
  failed(proxy: string, fault: RouteFaultCode, times: number): void {
    // A fault after a login that works is the network's or the target's.
    if (fault !== REFUSED && this.isAcceptedBy(proxy)) return;
    this.#answers.set(proxy, fault);
    this.#failures = this.#recentFailures + times;
    this.#failedAtMs = this.#now();
    // Without an answer the target may be at fault, and others may work: that costs no wait at first.
    if (fault !== REFUSED && this.#failures < MAX_BEFORE_WAIT) return;
    this.#waitUntilMs = this.#failedAtMs + Math.min(FIRST_WAIT_MS * 2 ** (this.#failures - 1), LONGEST_WAIT_MS);
  }

  get #recentFailures(): number {
    return this.#now() - this.#failedAtMs < LONGEST_WAIT_MS ? this.#failures : 0;
  }
}

interface LoginContext {
  readonly recordOf: (credentials: ProxyCredentials) => LoginRecord;
  readonly onTrial: () => void;
}

/** The login of one attempt, if it sends credentials. */
class LoginAttempt implements LoginObserver {
  readonly #proxy: string;
  readonly #signal: AbortSignal;
  readonly #context: LoginContext;
  #record: LoginRecord | undefined;
  #times = 0;
  #isAccepted = false;
  #isOver = false;
  #done: () => void = () => {};

  constructor(proxy: string, signal: AbortSignal, context: LoginContext) {
    this.#proxy = proxy;
    this.#signal = signal;
    this.#context = context;
  }

  /** Resolves when the credentials may be sent. Rejects with a `RouteFault`, or with the reason of the signal. */
  async begin(credentials: ProxyCredentials, source: CredentialsSource): Promise<void> {
    const record = this.#context.recordOf(credentials);
    const limits = record.isAcceptedBy(this.#proxy) ? [AbortSignal.timeout(ACCEPTED_WAIT_MS)] : [];
    const signal = AbortSignal.any([this.#signal, ...limits]);
    while (record.pending !== undefined && !signal.aborted) {
      await untilAborted(record.pending, signal).catch(() => {});
    }
    this.#signal.throwIfAborted();
    if (this.#isOver) throw new Error("the attempt is over");
    record.check(this.#proxy, source);
    const { promise, resolve } = deferred();
    this.#done = () => {
      if (record.pending === promise) record.pending = undefined;
      resolve();
    };
    record.pending = promise;
    this.#record = record;
  }

  onSent(): void {
    this.#times++;
    if (this.#record?.isAcceptedBy(this.#proxy) === false) this.#context.onTrial();
  }

  onAccepted(isCertain: boolean): void {
    if (this.#times === 0) return;
    this.#isAccepted = true;
    this.#record?.accepted(this.#proxy, isCertain);
  }

  mayResend(): boolean {
    if (this.#times === 0 || this.#record === undefined || this.#record.isAcceptedBy(this.#proxy)) return true;
    return this.#record.mayResend(this.#times);
  }

  /** The attempt is over; `fault` if it failed. */
  end(fault?: RouteFaultCode): void {
    this.#isOver = true;
    if (this.#times > 0 && !this.#isAccepted && fault !== undefined) {
      this.#record?.failed(this.#proxy, fault, this.#times);
    }
    this.#record = undefined;
    this.#done();
  }
}

function minutes(ms: number): string {
  return ms < 60_000 ? "less than a minute" : `${Math.ceil(ms / 60_000)} min`;
}
