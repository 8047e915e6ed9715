import { type BackoffOptions, backoffMs } from "../../shared/basics/backoff.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { ProvenResume } from "../../shared/link/control.ts";
import type { DialledAgain } from "../../shared/link/dial.ts";
import type { Link } from "../../shared/link/link.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** What is done with a link to give it another carrier. */
export type ResumptionLink = Pick<Link, "id" | "received" | "suspended" | "acks" | "resume" | "destroy">;

/** What a hello says of the link that it resumes, beside the proof. */
export type ResumeWords = Pick<ProvenResume, "link" | "received">;

/** A carrier on which the server goes on with the link. */
export interface NextCarrier {
  readonly carrier: Carrier;
  readonly remote: string;
  /** What the server has of the link. */
  readonly received: number;
}

/** Checks that the server of this link answered. Closes the carrier and throws a sentence if not. */
export function provenBy(key: LinkKey, link: string, { carrier, remote, resumed }: DialledAgain): NextCarrier {
  if (key.isAnswer(link, resumed)) return { carrier, remote, received: resumed.received };
  carrier.destroy();
  throw new Error("the answer to the resume does not prove that it comes from the server of this link");
}

export interface ResumptionDeps {
  readonly link: ResumptionLink;
  /** Opens a carrier; `words` is asked when the hello is sent. */
  redial(words: () => ResumeWords, signal: AbortSignal): Promise<NextCarrier>;
  /** Where a new carrier does not show who we are, that is shown apart before a planned one. */
  readonly prove?: ((signal: AbortSignal) => Promise<void>) | undefined;
  readonly retry: Pick<BackoffOptions, "baseMs" | "capMs"> & Partial<BackoffOptions>;
  /** The balancer has led us to another server than the link's, which would take us anew. */
  onElsewhere(refusal: LinkRefused): void;
  /** The link lives, but we are not its owner any more: the certificate that we show now has another subject. */
  onDisowned(): void;
  onFailed(error: unknown): void;
}

/** Waits between tries while the link is suspended: its streams stand still, and the grace is short. */
const SUSPENDED_CAP_MS = 800;

/** What a server may ask for meanwhile. */
const MOST_ASKED_MS = 3_000;
/** The same when another server has answered, which would take us: it should not have to say so all the time. */
const ELSEWHERE_CAP_MS = 5_000;
/** A carrier that is lost so soon after it was got has carried nothing, ms: what cuts it may cut the next one, too. */
const SHORT_LIFE_MS = 1_000;
/** So many failures that the waits have their whole length. */
const LATE = 64;

/**
 * So many answers of other servers in a row, and an agent that ends itself looks no further: none of them proves that the
 * link's own server is gone, but whatever leads there does not lead us back in the time that an end may take.
 */
const ELSEWHERE_AT_LAST = 5;

/** With these the server says that this link will never go on. */
const FINAL_CODES: ReadonlySet<number | undefined> = new Set([
  CloseCode.unknownLink,
  CloseCode.badProof,
  CloseCode.linkOfAnother,
  CloseCode.badOffset,
]);

/** The link is over, and the server that says so is up. */
export function endsLink(error: unknown): boolean {
  return error instanceof LinkRefused && FINAL_CODES.has(error.closeCode);
}

/**
 * Gives a link its next carrier (design: "Link and resumption"): after a loss at once and then again and again, until the
 * link's grace is over; planned, while the old carrier lives on.
 */
export class Resumption {
  readonly #deps: ResumptionDeps;
  #failures = 0;
  /** When the present carrier was got by a resume, and how many of them in a row did not last. */
  #resumedAt = Number.NEGATIVE_INFINITY;
  #shortLives = 0;
  /** Other servers that have answered in a row since the link's own was lost. */
  #elsewhere = 0;
  #isLast = false;
  #dialling: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(deps: ResumptionDeps) {
    this.#deps = deps;
  }

  /** A new carrier is wanted now. One that is under way already will do. */
  begin(): void {
    clearTimeout(this.#timer);
    if (this.#dialling === undefined && !this.#stopped) void this.#dial();
  }

  /** The carrier is lost: another one at once, unless one after the other is cut as soon as it carries. */
  lost(): void {
    const lastedMs = performance.now() - this.#resumedAt;
    this.#shortLives = lastedMs < SHORT_LIFE_MS ? this.#shortLives + 1 : 0;
    if (this.#shortLives <= 1 || this.#dialling !== undefined) this.begin();
    else this.#beginIn(backoffMs(this.#shortLives - 2, 0, this.#retryWithin(SUSPENDED_CAP_MS)));
  }

  /** The agent ends itself: it looks for the link's own server in haste, and not for all of the grace. */
  hasten(): void {
    this.#isLast = true;
    if (this.#elsewhere >= ELSEWHERE_AT_LAST) this.#giveUp();
    else if (this.#elsewhere > 0) this.begin();
  }

  #giveUp(): void {
    this.#deps.link.destroy(new Error(`${this.#elsewhere} times in a row another server than the link's has answered`));
  }

  #beginIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.begin(), ms);
  }

  #retryWithin(capMs: number): Partial<BackoffOptions> {
    const { retry } = this.#deps;
    return { ...retry, capMs: Math.min(capMs, retry.capMs) };
  }

  /** The link is over. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#dialling?.abort();
  }

  async #dial(): Promise<void> {
    const { link, prove, redial } = this.#deps;
    const dialling = new AbortController();
    this.#dialling = dialling;
    let named = 0;
    const words = (): ResumeWords => {
      // What is acknowledged on the old carrier from here on could be freed before this hello is read.
      link.acks.hold();
      named = link.received;
      return { link: link.id, received: named };
    };
    try {
      if (prove !== undefined && !link.suspended) await prove(dialling.signal);
      const next = await redial(words, dialling.signal);
      this.#dialling = undefined;
      this.#goOn(next, named);
    } catch (error) {
      this.#dialling = undefined;
      if (!this.#stopped) this.#failed(error);
    }
  }

  #goOn({ carrier, remote, received }: NextCarrier, named: number): void {
    const { link } = this.#deps;
    if (this.#stopped) {
      carrier.destroy();
      return;
    }
    try {
      link.resume(carrier, remote, { peerReceived: received, named });
    } catch (error) {
      const { badOffset, badControl } = CloseCode;
      carrier.close(error instanceof LinkRefused ? badOffset : badControl, (error as Error).message);
      link.destroy(error as Error);
      return;
    }
    this.#failures = 0;
    this.#elsewhere = 0;
    this.#resumedAt = performance.now();
    link.acks.now();
  }

  #failed(error: unknown): void {
    const { link, retry } = this.#deps;
    link.acks.release();
    this.#deps.onFailed(error);
    const refusal = error instanceof LinkRefused ? error : undefined;
    const isElsewhere = refusal?.closeCode === CloseCode.foreignLink;
    if (link.suspended) {
      if (endsLink(error)) {
        link.destroy(refusal);
        return;
      }
      this.#elsewhere = isElsewhere ? this.#elsewhere + 1 : 0;
      if (this.#isLast && this.#elsewhere >= ELSEWHERE_AT_LAST) {
        this.#giveUp();
        return;
      }
      if (isElsewhere) this.#deps.onElsewhere(refusal);
    } else if (refusal?.closeCode === CloseCode.linkOfAnother) {
      this.#deps.onDisowned();
      return; // until credentials change once more
    }
    const isPatient = isElsewhere && !this.#isLast;
    const capMs = !link.suspended ? retry.capMs : isPatient ? ELSEWHERE_CAP_MS : SUSPENDED_CAP_MS;
    // A server that is crowded may ask for patience, but not for longer than the link can wait.
    const askedMs = Math.min(refusal?.retryAfterMs ?? 0, link.suspended ? MOST_ASKED_MS : Number.POSITIVE_INFINITY);
    const waitMs = backoffMs(isPatient ? LATE : this.#failures, askedMs, this.#retryWithin(capMs));
    this.#failures++;
    this.#beginIn(waitMs);
  }
}
