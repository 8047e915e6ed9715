import { Backoff, backoffMs, MANY_FAILURES, type RetryOptions } from "../../shared/basics/backoff.ts";
import { seconds } from "../../shared/basics/text.ts";
import type { ProvenResume } from "../../shared/link/control.ts";
import type { DialledAgain } from "../../shared/link/dial.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { OpenedLink } from "./open-link.ts";

/** Opens the next carriers of a link. */
export interface Carriers {
  /** Opens a carrier; `resume` is called when the hello is sent. */
  redial(resume: () => ProvenResume, signal: AbortSignal): Promise<DialledAgain>;
  /** Renews the credential before a planned carrier, where a carrier itself shows none. */
  prove?(signal: AbortSignal): Promise<void>;
  /** Longest time for a dial of a suspended link, and from a hello to its answer, ms. */
  readonly resumeTimeoutMs: number;
  /** When the present carrier should be replaced, counted from its first moment, ms; Infinity: never. */
  carrierAgeMs(): number;
}

/** Receives the results of resumes that fail. */
interface ResumptionOwner {
  /** The balancer chose another server than the link's, which would accept the agent anew. */
  onElsewhere(): void;
  /** The link is up, but the agent is not its owner any more: its certificate has another subject now. */
  onDisowned(): void;
  onFailed(error: unknown): void;
}

/** Longest wait between attempts while the link is suspended, ms: its streams pause, and the grace is short. */
const SUSPENDED_CAP_MS = 800;

/** Longest wait that a server may ask for meanwhile, ms. */
const MAX_ASKED_MS = 3_000;
/** Longest wait where another server answered, which would accept the agent, ms: it should not refuse all the time. */
const ELSEWHERE_CAP_MS = 5_000;
/**
 * A carrier that is lost within this time after the resume, ms, has carried nothing: what cut it may cut the next one,
 * too.
 */
const SHORT_LIFE_MS = 1_000;

/**
 * An agent that shuts down gives up after this number of answers of other servers in a row. They do not prove that the
 * link's own server is gone, but the balancer will hardly choose it again in the time of a shutdown.
 */
const MAX_ELSEWHERE = 5;

/** Close codes by which the server says that the link is over. */
const FINAL_CODES: ReadonlySet<number | undefined> = new Set([
  CloseCode.unknownLink,
  CloseCode.badProof,
  CloseCode.linkOfAnother,
  CloseCode.badOffset,
]);

/** The server answered that the link is over. */
export function endsLink(error: unknown): boolean {
  return error instanceof LinkRefused && FINAL_CODES.has(error.closeCode);
}

type LinkAndKey = Pick<OpenedLink, "link" | "key">;

/**
 * Gives a link its next carrier: after a loss, by attempts until the grace of the link is over; or planned, while the
 * old carrier is still up (docs/link-protocol.md).
 */
export class Resumption {
  readonly #opened: LinkAndKey;
  readonly #source: Carriers;
  readonly #retry: RetryOptions;
  readonly #owner: ResumptionOwner;
  readonly #attempts: Backoff;
  /** Counts carriers in a row that were cut as soon as they were up. */
  readonly #shortLives: Backoff;
  /** When the present carrier resumed the link. */
  #resumedAt = Number.NEGATIVE_INFINITY;
  /** Answers of other servers in a row since the carrier to the link's own server was lost. */
  #elsewhere = 0;
  #isLast = false;
  #dialling: AbortController | undefined;
  /** Ends a dial that was planned, and had more time than there is now. */
  #deadline: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(opened: LinkAndKey, source: Carriers, retry: RetryOptions, owner: ResumptionOwner) {
    this.#opened = opened;
    this.#source = source;
    this.#retry = retry;
    this.#owner = owner;
    this.#attempts = new Backoff(retry);
    this.#shortLives = new Backoff(retry, SHORT_LIFE_MS);
  }

  /** Attempts that failed since the link had a carrier. */
  get failures(): number {
    return this.#attempts.failures;
  }

  /** Dials a new carrier now, unless a dial is under way. */
  begin(): void {
    clearTimeout(this.#timer);
    if (this.#dialling === undefined && !this.#stopped) void this.#dial();
  }

  /** The carrier is lost. The next one is dialled at once, unless the last two were cut as soon as they were up. */
  lost(): void {
    if (this.#dialling !== undefined) this.#limit(this.#dialling);
    this.#shortLives.ended("lost", performance.now() - this.#resumedAt);
    if (this.#shortLives.failures <= 2 || this.#dialling !== undefined) this.begin();
    else this.#beginIn(this.#shortLives.waitMs(0, this.#within(SUSPENDED_CAP_MS)));
  }

  /** The agent shuts down: it looks for the link's own server more often, and not for the whole grace. */
  hasten(): void {
    this.#isLast = true;
    if (this.#elsewhere >= MAX_ELSEWHERE) this.#giveUp();
    else if (this.#elsewhere > 0) this.begin();
  }

  #giveUp(): void {
    this.#opened.link.destroy(
      new Error(`${this.#elsewhere} times in a row another server than the link's has answered`),
    );
  }

  #beginIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.begin(), ms);
  }

  #within(capMs: number): Partial<RetryOptions> {
    return { capMs: Math.min(capMs, this.#retry.capMs) };
  }

  /** Call it when the link is over. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#dialling?.abort();
  }

  #limit(dialling: AbortController): void {
    const { resumeTimeoutMs: ms } = this.#source;
    const late = new Error(`the planned connection had no answer within ${seconds(ms)}`);
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => dialling.abort(late), ms);
  }

  async #dial(): Promise<void> {
    const { link, key } = this.#opened;
    const dialling = new AbortController();
    this.#dialling = dialling;
    let named = 0;
    const resume = (): ProvenResume => {
      // The server could free what the old carrier acknowledges from now on before it reads this hello.
      link.acks.hold();
      // Bytes that the server sends meanwhile wait for an acknowledgement.
      if (!link.suspended) this.#limit(dialling);
      named = link.received;
      return key.prove({ link: link.id, received: named });
    };
    try {
      if (this.#source.prove !== undefined && !link.suspended) await this.#source.prove(dialling.signal);
      const next = await this.#source.redial(resume, dialling.signal);
      if (!key.isAnswer(link.id, next.resumed)) {
        next.carrier.destroy();
        throw new Error("the answer to the resume does not prove that it comes from the server of this link");
      }
      this.#dialling = undefined;
      this.#goOn(next, named);
    } catch (error) {
      this.#dialling = undefined;
      if (!this.#stopped) this.#failed(dialling.signal.aborted ? dialling.signal.reason : error);
    } finally {
      clearTimeout(this.#deadline);
    }
  }

  #goOn({ carrier, remote, resumed }: DialledAgain, named: number): void {
    const { link } = this.#opened;
    if (this.#stopped) {
      carrier.destroy();
      return;
    }
    try {
      link.resume(carrier, remote, { peerReceived: resumed.received, named });
    } catch (error) {
      const { badOffset, badControl } = CloseCode;
      carrier.close(error instanceof LinkRefused ? badOffset : badControl, (error as Error).message);
      link.destroy(error as Error);
      return;
    }
    this.#attempts.connected();
    this.#elsewhere = 0;
    this.#resumedAt = performance.now();
    link.acks.now();
  }

  #failed(error: unknown): void {
    const { link } = this.#opened;
    const retry = this.#retry;
    link.acks.release();
    this.#attempts.attemptFailed();
    this.#owner.onFailed(error);
    const refusal = error instanceof LinkRefused ? error : undefined;
    const isElsewhere = refusal?.closeCode === CloseCode.foreignLink;
    if (link.suspended) {
      if (endsLink(error)) {
        link.destroy(refusal);
        return;
      }
      this.#elsewhere = isElsewhere ? this.#elsewhere + 1 : 0;
      if (this.#isLast && this.#elsewhere >= MAX_ELSEWHERE) {
        this.#giveUp();
        return;
      }
      if (isElsewhere) this.#owner.onElsewhere();
    } else if (refusal?.closeCode === CloseCode.linkOfAnother) {
      this.#owner.onDisowned();
      return; // until credentials change once more
    }
    const isPatient = isElsewhere && !this.#isLast;
    const capMs = !link.suspended ? retry.capMs : isPatient ? ELSEWHERE_CAP_MS : SUSPENDED_CAP_MS;
    // A crowded server may ask for a pause, but not for longer than the link can wait.
    const askedMs = Math.min(refusal?.retryAfterMs ?? 0, link.suspended ? MAX_ASKED_MS : Number.POSITIVE_INFINITY);
    const within = this.#within(capMs);
    const waitMs = isPatient
      ? backoffMs(MANY_FAILURES, askedMs, { ...retry, ...within })
      : this.#attempts.waitMs(askedMs, within);
    this.#beginIn(waitMs);
  }
}
