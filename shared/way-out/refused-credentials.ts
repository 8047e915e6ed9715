import { createHash } from "node:crypto";
import { WayFault } from "./fault.ts";
import type { ProxyCredentials } from "./way.ts";

/** A directory locks an account after some five wrong passwords in half an hour; these waits make four at most. */
const FIRST_WAIT_MS = 5 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;
/** So many proxies may refuse them one after another; then they are shown to nobody new. They may all ask one directory. */
const MOST_REFUSALS = 3;
/** On top of a wait, by chance: the agents of a company share an account, and may have begun together. */
const JITTER = 0.2;
/** What a proxy has taken before is held back no longer than this: a refusal comes sooner, a dead server's timeout later. */
const KNOWN_WAIT_MS = 1_000;
/** A PAC script may name new proxies without end. */
const MOST_REMEMBERED = 16;

/** Who names them: what a person can do before their time has come. A URL is read once, when the process starts. */
const CURES = {
  file: "write others into --proxy-credentials-file, and the next attempt sends those",
  url: "put others into the proxy's URL and restart, and those are sent at once",
} as const;

export type Verdict = "accepted" | "refused" | "unknown";

/** A user with a password, whoever named them. */
interface Account {
  /** What each proxy said last. */
  readonly verdicts: Map<string, Verdict>;
  /** By whichever proxy, since all took them. */
  refusals: number;
  refusedAtMs: number;
  untilMs: number;
  /** One attempt shows them, and its proxy's word is not in yet. */
  pending: Promise<void> | undefined;
}

/**
 * Which credentials were refused, so that no account is locked by a program that asks again and again. Who refused them is
 * not shown them for minutes, nor is anybody else while several attempts begin at once: only one shows them, the others
 * hear what came of it. Other credentials are another account: those of a file that was mended go out at once.
 */
export class RefusedCredentials {
  readonly #accounts = new Map<string, Account>();
  readonly #now: () => number;
  readonly #random: () => number;

  constructor(now: () => number, random: () => number = Math.random) {
    this.#now = now;
    this.#random = random;
  }

  /** One attempt at a proxy (`formatProxy`). */
  attempt(proxy: string, signal: AbortSignal): Showing {
    return new Showing(this, proxy, signal);
  }

  accountOf({ user, password }: ProxyCredentials): Account {
    // A password that was changed must not be kept.
    const name = createHash("sha256")
      .update(JSON.stringify([user, password]))
      .digest("hex");
    const account: Account = this.#accounts.get(name) ?? {
      verdicts: new Map(),
      refusals: 0,
      refusedAtMs: 0,
      untilMs: 0,
      pending: undefined,
    };
    remember(this.#accounts, name, account);
    return account;
  }

  /** Throws a `WayFault` for what this proxy has refused lately. */
  check({ verdicts, refusals, refusedAtMs, untilMs }: Account, proxy: string, from: keyof typeof CURES): void {
    const now = this.#now();
    const verdict = verdicts.get(proxy) ?? "unknown";
    const isHeld = verdict === "refused" || (verdict === "unknown" && refusals >= MOST_REFUSALS);
    if (!isHeld || now >= untilMs) return;
    const ago = `${minutes(now - refusedAtMs)} ago`;
    const told =
      verdict === "refused"
        ? `refused the user or the password ${ago}`
        : `was not sent the user and the password, because other proxies refused them ${ago}`;
    const message = `the proxy ${proxy} ${told}; so that no account is locked, they are held back for ${minutes(untilMs - now)}, then tried again: ${CURES[from]}`;
    throw new WayFault("proxy_auth_refused", message, { at: proxy });
  }

  judge(account: Account, proxy: string, verdict: Verdict): void {
    if (verdict === "unknown") return;
    remember(account.verdicts, proxy, verdict);
    if (verdict === "refused") {
      const waitMs = Math.min(FIRST_WAIT_MS * 2 ** account.refusals, LONGEST_WAIT_MS);
      account.refusals++;
      account.refusedAtMs = this.#now();
      account.untilMs = account.refusedAtMs + waitMs * (1 + JITTER * this.#random());
    } else if (![...account.verdicts.values()].includes("refused")) {
      account.refusals = 0;
    }
  }
}

/** What one attempt shows, if anything. */
export class Showing {
  readonly #memory: RefusedCredentials;
  readonly #proxy: string;
  readonly #signal: AbortSignal;
  #shown: Account | undefined;
  #done: () => void = () => {};
  #over = false;

  constructor(memory: RefusedCredentials, proxy: string, signal: AbortSignal) {
    this.#memory = memory;
    this.#proxy = proxy;
    this.#signal = signal;
  }

  /** The credentials may be sent now. Rejects with a `WayFault` if they must not, with the signal's reason when that is aborted. */
  async begin(credentials: ProxyCredentials, from: keyof typeof CURES): Promise<void> {
    const account = this.#memory.accountOf(credentials);
    const isKnown = account.verdicts.get(this.#proxy) === "accepted";
    const patience = isKnown ? AbortSignal.timeout(KNOWN_WAIT_MS) : undefined;
    while (account.pending !== undefined && !this.#signal.aborted && patience?.aborted !== true) {
      await settledOrAborted(account.pending, this.#signal, patience);
    }
    this.#signal.throwIfAborted();
    if (this.#over) throw new Error("the attempt is over");
    this.#memory.check(account, this.#proxy, from);
    const pending = new Promise<void>((resolve) => {
      this.#done = () => {
        if (account.pending === pending) account.pending = undefined;
        resolve();
      };
    });
    account.pending = pending;
    this.#shown = account;
  }

  /** What came of it. */
  end(verdict: Verdict): void {
    this.#over = true;
    if (this.#shown !== undefined) this.#memory.judge(this.#shown, this.#proxy, verdict);
    this.#shown = undefined;
    this.#done();
  }
}

/** Resolves with what comes first. */
function settledOrAborted(pending: Promise<void>, ...signals: readonly (AbortSignal | undefined)[]): Promise<void> {
  const given = signals.filter((signal) => signal !== undefined);
  return new Promise((resolve) => {
    const onEnd = (): void => {
      for (const signal of given) signal.removeEventListener("abort", onEnd);
      resolve();
    };
    for (const signal of given) signal.addEventListener("abort", onEnd);
    void pending.then(onEnd);
  });
}

/** As the latest; the oldest is forgotten. */
function remember<T>(map: Map<string, T>, name: string, value: T): void {
  map.delete(name);
  map.set(name, value);
  const [oldest] = map.keys();
  if (map.size > MOST_REMEMBERED && oldest !== undefined) map.delete(oldest);
}

function minutes(ms: number): string {
  return ms < 60_000 ? "less than a minute" : `${Math.ceil(ms / 60_000)} min`;
}
