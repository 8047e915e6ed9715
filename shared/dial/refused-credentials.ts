import { createHash } from "node:crypto";
import { RouteFault, type RouteFaultCode } from "./fault.ts";
import type { LoginObserver, ProxyCredentials } from "./proxy-route.ts";

/** A directory locks an account after some five wrong passwords in half an hour; these waits make four at most. */
const FIRST_WAIT_MS = 5 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;
/** After which a directory counts from one again. */
const REST_MS = LONGEST_WAIT_MS;
const MOST_BEFORE_REST = 4;
/** Not taken so often, and refused, they are shown to no other proxy: all of them may ask one directory. */
const MOST_BEFORE_WAIT = 3;
/** One showing is left for another proxy by one that says nothing. */
const LEFT_FOR_OTHERS = 1;
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

const REFUSED = "proxy_auth_refused";

/**
 * How an attempt ended that showed them. `passed`: by an answer that asks for no login, as a proxy gives it to whom it knows,
 * or one that has no time for anybody. All but these and a refusal give no word, and they may have been judged all the same.
 */
export type Verdict = "accepted" | "passed" | RouteFaultCode;

export interface Through {
  /** `formatProxy` */
  readonly proxy: string;
  /** Who is asked for. */
  readonly server: string;
}

/** A user with a password, whoever named them. */
interface Account {
  /** What came last of showing them to each proxy; one that took them has taken them, until it refuses. */
  readonly verdicts: Map<string, "accepted" | RouteFaultCode>;
  /** How often they were shown and not taken, by whichever proxy, since all took them. */
  untaken: number;
  /** For which servers, since the last rest. */
  lately: readonly string[];
  untakenAtMs: number;
  untilMs: number;
  /** One attempt shows them, and its proxy's word is not in yet. */
  pending: Promise<void> | undefined;
}

/**
 * Which credentials were shown and not taken, so that no account is locked by a program that asks again and again. Who
 * refused them is not shown them for minutes, nor is anybody else while several attempts begin at once: only one shows
 * them, the others hear what came of it. The same for who never took them and gives no word on them, because it hangs up or
 * is too slow; but that may be for the sake of the server that was asked for, and each server has one turn before the wait.
 * Other credentials are another account: those of a file that was mended go out at once.
 */
export class RefusedCredentials {
  readonly #accounts = new Map<string, Account>();
  readonly #now: () => number;
  readonly #random: () => number;

  constructor(now: () => number, random: () => number = Math.random) {
    this.#now = now;
    this.#random = random;
  }

  /** One attempt at a server through a proxy (`formatProxy`). `onTrial`: that is shown what it has not taken before. */
  attempt(through: Through, signal: AbortSignal, onTrial: () => void = () => {}): Showing {
    return new Showing(this, through, signal, onTrial);
  }

  accountOf({ user, password }: ProxyCredentials): Account {
    // A password that was changed must not be kept.
    const name = createHash("sha256")
      .update(JSON.stringify([user, password]))
      .digest("hex");
    const account: Account = this.#accounts.get(name) ?? {
      verdicts: new Map(),
      untaken: 0,
      lately: [],
      untakenAtMs: 0,
      untilMs: 0,
      pending: undefined,
    };
    remember(this.#accounts, name, account);
    return account;
  }

  /** Throws a `RouteFault` for what this proxy has not taken lately: the fault of that time. */
  check(account: Account, { proxy, server }: Through, from: keyof typeof CURES): void {
    const { verdicts, untakenAtMs, untilMs } = account;
    const now = this.#now();
    const verdict = verdicts.get(proxy) ?? (this.#mayBeShownToNew(account) ? "accepted" : "others");
    if (verdict === "accepted" || now >= untilMs) return;
    const isWordless = verdict !== "others" && verdict !== REFUSED;
    if (isWordless && this.room(account) > LEFT_FOR_OTHERS && !account.lately.includes(server)) return;
    const told = toldOf(verdict, `${minutes(now - untakenAtMs)} ago`);
    const message = `the proxy ${proxy} ${told}; so that no account is locked, they are held back for ${minutes(untilMs - now)}, then tried again: ${CURES[from]}`;
    throw new RouteFault(verdict === "others" ? REFUSED : verdict, message, { at: proxy });
  }

  /** Where one proxy has taken them and none refused them, others' silence is their own. */
  #mayBeShownToNew(account: Account): boolean {
    const verdicts = [...account.verdicts.values()];
    if (verdicts.includes(REFUSED)) return account.untaken < MOST_BEFORE_WAIT;
    return verdicts.includes("accepted") || this.room(account) > 0;
  }

  /** How often they may be shown before a rest, whatever comes of it. */
  room(account: Account): number {
    return MOST_BEFORE_REST - this.#lately(account).length;
  }

  #lately({ lately, untakenAtMs }: Account): readonly string[] {
    return this.#now() - untakenAtMs < REST_MS ? lately : [];
  }

  /** What came of showing them so many `times`. */
  judge(account: Account, { proxy, server }: Through, verdict: Verdict, times: number): void {
    const { verdicts } = account;
    if (verdict === "passed" && verdicts.get(proxy) === REFUSED) return; // that it said, and this may be anything
    if (verdict === "accepted" || verdict === "passed") {
      remember(verdicts, proxy, "accepted");
      if ([...verdicts.values()].every((each) => each === "accepted")) {
        account.untaken = 0;
        account.lately = [];
      }
      return;
    }
    // Of what it has taken before it has said nothing: the fault is the network's, or the server's.
    if (verdict !== REFUSED && verdicts.get(proxy) === "accepted") return;
    remember(verdicts, proxy, verdict);
    account.untaken += times;
    account.lately = [...this.#lately(account), ...Array<string>(times).fill(server)];
    account.untakenAtMs = this.#now();
    const waitMs = Math.min(FIRST_WAIT_MS * 2 ** (account.untaken - 1), LONGEST_WAIT_MS);
    account.untilMs = account.untakenAtMs + waitMs * (1 + JITTER * this.#random());
  }
}

function toldOf(verdict: RouteFaultCode | "others", ago: string): string {
  if (verdict === REFUSED) return `refused the user or the password ${ago}`;
  return verdict === "others"
    ? `was not sent the user and the password, because other proxies did not take them ${ago}`
    : `was sent the user and the password ${ago}, and gave no word on them (${verdict})`;
}

/** What one attempt shows, if anything. */
export class Showing implements LoginObserver {
  readonly #memory: RefusedCredentials;
  readonly #through: Through;
  readonly #signal: AbortSignal;
  readonly #onTrial: () => void;
  #account: Account | undefined;
  #times = 0;
  #taken: "accepted" | "passed" | undefined;
  #done: () => void = () => {};
  #over = false;

  constructor(memory: RefusedCredentials, through: Through, signal: AbortSignal, onTrial: () => void) {
    this.#memory = memory;
    this.#through = through;
    this.#signal = signal;
    this.#onTrial = onTrial;
  }

  /** The credentials may be sent now. Rejects with a `RouteFault` if they must not, with the signal's reason when that is aborted. */
  async begin(credentials: ProxyCredentials, from: keyof typeof CURES): Promise<void> {
    const account = this.#memory.accountOf(credentials);
    const patience = this.#isKnown(account) ? AbortSignal.timeout(KNOWN_WAIT_MS) : undefined;
    while (account.pending !== undefined && !this.#signal.aborted && patience?.aborted !== true) {
      await settledOrAborted(account.pending, this.#signal, patience);
    }
    this.#signal.throwIfAborted();
    if (this.#over) throw new Error("the attempt is over");
    this.#memory.check(account, this.#through, from);
    const pending = new Promise<void>((resolve) => {
      this.#done = () => {
        if (account.pending === pending) account.pending = undefined;
        resolve();
      };
    });
    account.pending = pending;
    this.#account = account;
  }

  onShown(): void {
    this.#times++;
    if (this.#account !== undefined && !this.#isKnown(this.#account)) this.#onTrial();
  }

  onTaken(isCertain: boolean): void {
    this.#taken = isCertain ? "accepted" : "passed";
  }

  mayRepeat(): boolean {
    if (this.#times === 0 || this.#account === undefined || this.#isKnown(this.#account)) return true;
    return this.#times < this.#memory.room(this.#account);
  }

  /** What came of it. */
  end(verdict: Verdict): void {
    this.#over = true;
    if (this.#account !== undefined && this.#times > 0) {
      this.#memory.judge(this.#account, this.#through, this.#taken ?? verdict, this.#times);
    }
    this.#account = undefined;
    this.#done();
  }

  #isKnown({ verdicts }: Account): boolean {
    return verdicts.get(this.#through.proxy) === "accepted";
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
