import { createHash } from "node:crypto";
import { RecentMap } from "../basics/collections.ts";
import { deferred, untilAborted } from "../basics/promises.ts";
import { BoundedFile, FileTooLargeError, readFailure } from "../documents/read-bounded.ts";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { CONTROL_CHARACTER, ProxyFileFault, RouteFault, type RouteFaultCode } from "./proxy-route.ts";

/** The credentials for a proxy that asks who we are. */
export interface ProxyLogin {
  /** The result is sent if the proxy asks for it. May reject with a `RouteFault`. */
  readonly credentials: () => Promise<ProxyCredentials | undefined>;
  /** See `ProxyRoute`. `credentials` gives what may be sent nevertheless. */
  readonly isUnverified?: boolean | undefined;
  /** There is a password that this proxy does not get because of `isUnverified`. */
  readonly isWithheld?: boolean | undefined;
  readonly login?: LoginWatcher | undefined;
}

/** Receives what becomes of credentials. */
interface LoginWatcher {
  /** The credentials are being sent. */
  onSent(): void;
  /** The proxy has accepted them. If not `isCertain`, it has only answered without asking for a login. */
  onAccepted(isCertain: boolean): void;
  /** May the credentials be sent again in this attempt, if the proxy has neither accepted nor refused them? */
  mayResend(): boolean;
}

/** A wrong path may name a large file. */
const MAX_FILE_BYTES = 4096;
/** Shorter than the time of any proxy route, so that the fault names the file and not the proxy. */
const READ_TIMEOUT_MS = 3_000;

/**
 * `--proxy-credentials-file`: one line, `user:password`; the password may contain colons. The file is read for each
 * attempt, so that a new password needs no restart.
 */
export class CredentialsFile {
  readonly #file: BoundedFile;

  constructor(path: string) {
    this.#file = new BoundedFile(path, MAX_FILE_BYTES);
  }

  /** Rejects with a `RouteFault` that names option and file, without the content. */
  async read(signal: AbortSignal): Promise<ProxyCredentials> {
    const line = this.#decode(await this.#content(signal)).replace(/\r?\n$/, "");
    if (line === "") throw this.#fault("is empty: write user:password into it");
    // This comes first, because UTF-16 without a byte order mark has a NUL in each character, also in line breaks.
    if (CONTROL_CHARACTER.test(line.replace(/[\r\n]/g, ""))) {
      throw this.#fault("holds a control character: write user:password into it, without any, as UTF-8");
    }
    if (/[\r\n]/.test(line)) throw this.#fault("has more than one line: write user:password into it");
    const colon = line.indexOf(":");
    if (colon < 0) throw this.#fault("has no colon: write user:password into it");
    return { user: line.slice(0, colon), password: line.slice(colon + 1) };
  }

  async #content(signal: AbortSignal): Promise<Buffer> {
    const limit = AbortSignal.timeout(READ_TIMEOUT_MS);
    return await this.#file.read(AbortSignal.any([signal, limit])).catch((error) => {
      if (error instanceof FileTooLargeError) {
        throw this.#fault("is larger than 4 KiB: write only user:password into it");
      }
      const isLate = signal.aborted || limit.aborted;
      throw this.#fault(isLate ? "could not be read in time: check its disk" : `cannot be read: ${readFailure(error)}`);
    });
  }

  /** TextDecoder removes the byte order mark that Windows writes. */
  #decode(content: Buffer): string {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(content);
    } catch {
      throw this.#fault("is not UTF-8: write user:password into it in that encoding");
    }
  }

  #fault(what: string): RouteFault {
    const { path } = this.#file;
    return new ProxyFileFault("proxy_auth_required", `--proxy-credentials-file ${path} ${what}`, { at: path });
  }
}

/** A directory locks an account after about five wrong passwords in half an hour. These waits allow four. */
const FIRST_WAIT_MS = 5 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;
const MAX_IN_HALF_AN_HOUR = 4;
/** After this number of failures no other proxy gets the credentials, because all proxies may ask one directory. */
const MAX_BEFORE_WAIT = 3;
/**
 * Time that accepted credentials wait for another attempt, ms. A refusal comes sooner, but a proxy accepts only after
 * it has dialled, and a target that does not answer must not delay the others.
 */
const ACCEPTED_WAIT_MS = 1_000;
/** Maximum number of records, and of proxies in each: a PAC script may name new proxies without end. */
const MAX_REMEMBERED = 16;

const REFUSED = "proxy_auth_refused";

/** The cure that ends the wait sooner, by the source of the credentials. */
const CURES = {
  file: "a new one in --proxy-credentials-file is sent at once",
  url: "after a restart a new one in the proxy's URL is sent at once",
} as const;
type CredentialsSource = keyof typeof CURES;

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
    return new LoginAttempt(this, proxy, signal, onTrial);
  }

  /** For the attempts. */
  recordOf({ user, password }: ProxyCredentials): LoginRecord {
    // A hash, so that a password that was replaced does not stay in memory.
    const key = createHash("sha256")
      .update(JSON.stringify([user, password]))
      .digest("hex");
    const record = this.#records.get(key) ?? new LoginRecord(this.#now);
    this.#records.set(key, record);
    return record;
  }
}

/** The facts about one pair of user and password. */
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

  /** Whether an attempt that has sent them `times` times may send them once more. */
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
          : `did not accept the password ${ago} (${answer})`;
    const message = `the proxy ${proxy} ${why}; to avoid an account lockout it is sent again in ${minutes(this.#waitUntilMs - now)}: ${CURES[source]}`;
    throw new RouteFault(answer ?? REFUSED, message, { at: proxy });
  }

  accepted(proxy: string, isCertain: boolean): void {
    // A balancer's 503 does not withdraw a refusal.
    if (!isCertain && this.#answers.get(proxy) === REFUSED) return;
    this.#answers.set(proxy, "accepted");
    if ([...this.#answers.values()].every((answer) => answer === "accepted")) this.#failures = 0;
  }

  /** The attempt has sent them `times` times, and ended with this fault. */
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

/** The login of one attempt, if it sends credentials. */
class LoginAttempt implements LoginWatcher {
  readonly #refused: RefusedCredentials;
  readonly #proxy: string;
  readonly #signal: AbortSignal;
  readonly #onTrial: () => void;
  #record: LoginRecord | undefined;
  #times = 0;
  #isAccepted = false;
  #isOver = false;
  #done: () => void = () => {};

  constructor(refused: RefusedCredentials, proxy: string, signal: AbortSignal, onTrial: () => void) {
    this.#refused = refused;
    this.#proxy = proxy;
    this.#signal = signal;
    this.#onTrial = onTrial;
  }

  /** Resolves when the credentials may be sent. Rejects with a `RouteFault`, or with the reason of the signal. */
  async begin(credentials: ProxyCredentials, source: CredentialsSource): Promise<void> {
    const record = this.#refused.recordOf(credentials);
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
    if (this.#record?.isAcceptedBy(this.#proxy) === false) this.#onTrial();
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
