// ── when to acknowledge ─────────────────────────────────────────────────────────────────────────────────────────────

/** This number of bytes is acknowledged at once, fewer with the next write. */
const ACK_BYTES = 64 * 1024;
/** Shortest time between two acknowledgements, ms: each is a TLS record, a system call and a wake-up of the peer. */
const ACK_GAP_MS = 5;
/** Without a write to go with, fewer bytes are acknowledged after this time. */
const ACK_WAIT_MS = 10;
/** The rate of arrivals is measured over this time, ms; over a longer one nothing came now and then. */
const RATE_MS = { least: 1_000, most: 5_000 } as const;

/**
 * Decides when to acknowledge what a link has received (docs/link-protocol.md). Acknowledgements go with what is
 * written anyway, if they can.
 */
export class Acks {
  readonly #send: (received: number) => void;
  readonly #clock: () => number;
  #received = 0;
  #acked = 0;
  #held = false;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** The part of the arrivals whose rate is measured now, and the rate of the one before. */
  #measured = { received: 0, atMs: Number.NEGATIVE_INFINITY };
  #bytesPerSecond: number | undefined;
  /** 64 KiB wait until the last acknowledgement is 5 ms old. */
  #gapTimer: NodeJS.Timeout | undefined;
  #waitTimer: NodeJS.Timeout | undefined;

  constructor(send: (received: number) => void, clock: () => number = () => performance.now()) {
    this.#send = send;
    this.#clock = clock;
  }

  /** All payload before this offset has arrived. */
  get received(): number {
    return this.#received;
  }

  /** See `LinkPace.receivedPerSecond`. */
  get bytesPerSecond(): number | undefined {
    return this.#clock() - this.#measured.atMs > RATE_MS.most ? undefined : this.#bytesPerSecond;
  }

  #measure(): void {
    const elapsedMs = this.#sentAt - this.#measured.atMs;
    if (elapsedMs < RATE_MS.least) return;
    const bytes = this.#received - this.#measured.received;
    this.#bytesPerSecond = elapsedMs > RATE_MS.most ? undefined : (bytes / elapsedMs) * 1_000;
    this.#measured = { received: this.#received, atMs: this.#sentAt };
  }

  arrived(bytes: number): void {
    this.#received += bytes;
    this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
    if (this.#received - this.#acked >= ACK_BYTES && this.#gapTimer === undefined) this.#hurry();
  }

  /** An acknowledgement can go with what is about to be written. */
  beforeWrite(): void {
    if (this.#received > this.#acked && this.#clock() - this.#sentAt >= ACK_GAP_MS) this.now();
  }

  /** Acknowledges now, even if nothing has arrived: the peer waits for a first message on a new carrier. */
  now(): void {
    if (this.#held) return;
    this.#acked = this.#received;
    this.#sentAt = this.#clock();
    this.#measure();
    this.#stopTimers();
    this.#send(this.#received);
  }

  /** Acknowledges nothing until `release`, because a hello or its answer has named an offset as the highest. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    if (this.#received > this.#acked) this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
  }

  stop(): void {
    this.#held = true;
    this.#stopTimers();
  }

  #stopTimers(): void {
    clearTimeout(this.#gapTimer);
    this.#gapTimer = undefined;
    clearTimeout(this.#waitTimer);
    this.#waitTimer = undefined;
  }

  readonly #onWaited = (): void => {
    this.#waitTimer = undefined;
    this.now();
  };

  #hurry(): void {
    const leftMs = Math.ceil(this.#sentAt + ACK_GAP_MS - this.#clock());
    if (leftMs > 0) this.#gapTimer = setTimeout(this.#onGap, leftMs).unref();
    else this.now();
  }

  readonly #onGap = (): void => {
    this.#gapTimer = undefined;
    this.now();
  };
}

// ── how much may wait for acknowledgements ──────────────────────────────────────────────────────────────────────────

/** The least bound: an interactive stream always has room beside a bulk one. It costs 52 ms at 10 Mbit/s. */
export const IN_FLIGHT_FLOOR = 64 * 1024;
/**
 * Allowance on top of the least round trip: the time for which a receiver may delay an ack, and 15 ms by which timers
 * and bursts are late, so that the line never idles.
 */
const SLACK_MS = ACK_WAIT_MS + 15;
/**
 * Number of rounds in a row that must be late: a loop that stood still, or a spike of the path, makes one or two late.
 */
const LATE_ROUNDS = 3;
/** At the start the first late rounds count at once, because the bound doubles each round and is soon far too high. */
const HASTY_CUTS = 2;
/** A cut that should make rounds shorter by less than this proves nothing: the delays of acks vary that much. */
const TELLING_MS = 20;
/** At the floor a round that takes longer than the fastest one there by this factor shows that the path is longer. */
const LONGER = 1.25;
/** After this time with more than 64 KiB under way in every round, a round has less: two round trips, 2 %. */
const PROBE_EVERY_MS = 10_000;
const PROBE_EVERY_ROUND_TRIPS = 100;

/**
 * How many bytes a link may have unacknowledged: delivery rate × (least round trip + ack delay), so that a bulk
 * transfer keeps a slow line busy and yet leaves no queue in front of an interactive stream (docs/link-protocol.md).
 *
 * One byte is marked at a time, and the ack that covers it ends a *round*. If the bound held the sender back, the mark
 * is the last byte it let through, and bound ÷ delivery rate is what a byte takes on average (Little's law). Hence one
 * rule for more and for less: bound × allowed ÷ taken, where allowed is the least round trip + 25 ms.
 *
 * - **More** after any round within what is allowed, and only if the bound held the sender back; double at the start.
 * - **Less** after three late rounds in a row, by the fastest of them.
 * - **The least round trip falls** with any faster round. A lasting queue would hide it, so now and then one round is a
 *   *probe*, with next to nothing under way.
 * - **It rises** only by proof: if cuts have not made rounds shorter, the delay is not our queue. They are taken back
 *   and a probe measures the path anew.
 *
 * Rounds with less than 64 KiB under way, which the bound did not hold back, change nothing but the least round trip.
 */
export class InFlight {
  readonly #most: number;
  #bound: number;
  #hastyCuts = HASTY_CUTS;
  #sent: number;
  #sentAtMs = 0;
  #acked: number;
  #mark: { readonly offset: number; readonly sentAtMs: number; readonly underWay: number } | undefined;
  #limited = false;
  /** The end of the round before: what was acknowledged, and when. */
  #before: { readonly acked: number; readonly atMs: number };
  /** Bytes per second in the last round, even if the sender had little to send; 0: no round yet. */
  #rate = 0;
  /** See `LinkPace`. */
  roundMs: number | undefined;
  sentPerSecond: number | undefined;
  #least = Number.POSITIVE_INFINITY;
  /** When a round last had so little under way that it made no queue. */
  #bareAtMs = Number.NEGATIVE_INFINITY;
  #probing = false;
  #lateRounds = 0;
  #fastestLateMs = 0;
  /** The fastest of the late rounds at the floor: on a slow line what 64 KiB take. */
  #floorMs = Number.POSITIVE_INFINITY;
  /** Where the cuts began whose effect is still to be seen. */
  #cutFrom: { readonly bound: number; readonly tookMs: number } | undefined;

  /**
   * For one carrier, on which sending begins at `offset`. A new one gets nothing of what was learned before, not even
   * for a planned change: the path may differ, TCP begins slower than we do, and doubling reaches 16 MiB after
   * eight rounds.
   */
  constructor(mostBytes: number, offset: number) {
    this.#most = Math.max(IN_FLIGHT_FLOOR, mostBytes);
    this.#bound = IN_FLIGHT_FLOOR;
    this.#sent = offset;
    this.#acked = offset;
    this.#before = { acked: offset, atMs: 0 };
  }

  /** How many bytes may be unacknowledged now. */
  get bound(): number {
    return this.#probing ? IN_FLIGHT_FLOOR : this.#bound;
  }

  /** All before `sentOffset` has been handed to the carrier. */
  onSent(sentOffset: number, nowMs: number): void {
    this.#sent = sentOffset;
    this.#sentAtMs = nowMs;
    if (this.#mark === undefined) this.#setMark();
  }

  /** The sender has more to send than the bound allows. */
  onLimited(): void {
    // Without a mark nothing was sent in this round: what is under way was sent under an older bound. And the first
    // write on a carrier stays marked, because it is the one most likely to have the path to itself.
    if (this.#limited || this.#mark === undefined || this.#least === Number.POSITIVE_INFINITY) return;
    this.#limited = true;
    this.#setMark();
  }

  onAck(ackedOffset: number, nowMs: number): void {
    const acked = Math.min(ackedOffset, this.#sent);
    if (acked <= this.#acked) return;
    this.#acked = acked;
    const mark = this.#mark;
    if (mark === undefined || acked < mark.offset) return;
    this.#mark = undefined;
    const limited = this.#limited;
    this.#limited = false;
    const elapsedMs = nowMs - this.#before.atMs;
    if (elapsedMs > 0) this.#rate = ((this.#acked - this.#before.acked) / elapsedMs) * 1_000;
    this.#before = { acked: this.#acked, atMs: nowMs };
    this.roundMs = Math.max(0, nowMs - mark.sentAtMs);
    if (limited) this.sentPerSecond = this.#rate;
    this.#onRound(this.roundMs, mark.underWay, limited, nowMs);
  }

  #setMark(): void {
    this.#mark = { offset: this.#sent, sentAtMs: this.#sentAtMs, underWay: this.#sent - this.#acked };
  }

  #onRound(rttMs: number, underWay: number, limited: boolean, nowMs: number): void {
    this.#least = Math.min(this.#least, rttMs);
    const probed = this.#probing;
    this.#probing = false;
    if (probed || underWay <= IN_FLIGHT_FLOOR) this.#bareAtMs = nowMs;
    if (probed) return;
    const probeEveryMs = Math.max(PROBE_EVERY_MS, PROBE_EVERY_ROUND_TRIPS * this.#least);
    // The round counts nevertheless: on a slow line each may take longer than the time between two probes.
    if (limited && rttMs > SLACK_MS && nowMs - this.#bareAtMs > probeEveryMs) this.#probing = true;
    // The average, because the marked byte is the last of its burst and may have waited for an ack longer than most.
    const tookMs = limited && this.#rate > 0 ? Math.min(rttMs, (this.#bound / this.#rate) * 1_000) : rttMs;
    const allowedMs = this.#least + SLACK_MS;
    if (tookMs <= allowedMs) {
      this.#lateRounds = 0;
      if (limited) this.#setBound(this.#bound * (this.#hastyCuts > 0 ? 2 : Math.min(2, allowedMs / tookMs)));
    } else if (limited || underWay > IN_FLIGHT_FLOOR) {
      this.#onLateRound(tookMs, allowedMs);
    }
  }

  #onLateRound(tookMs: number, allowedMs: number): void {
    this.#fastestLateMs = this.#lateRounds === 0 ? tookMs : Math.min(this.#fastestLateMs, tookMs);
    this.#lateRounds++;
    if (this.#hastyCuts === 0 && this.#lateRounds < LATE_ROUNDS) return;
    this.#hastyCuts = Math.max(0, this.#hastyCuts - 1);
    this.#lateRounds = 0;
    this.#cut(this.#fastestLateMs, allowedMs);
  }

  #cut(tookMs: number, allowedMs: number): void {
    const from = this.#cutFrom ?? { bound: this.#bound, tookMs };
    const expectedMs = from.tookMs * (1 - this.#bound / from.bound);
    const telling = expectedMs >= TELLING_MS;
    if (telling && from.tookMs - tookMs < expectedMs / 3) {
      this.#setBound(from.bound);
      this.#measureAnew();
      return;
    }
    this.#cutFrom = telling ? { bound: this.#bound, tookMs } : from;
    // At the floor no cut can prove anything. To stay there costs little, unless the path has become longer.
    if (this.#bound === IN_FLIGHT_FLOOR) {
      if (tookMs > LONGER * this.#floorMs) this.#measureAnew();
      else this.#floorMs = Math.min(this.#floorMs, tookMs);
    }
    this.#setBound((this.#bound * allowedMs) / tookMs);
  }

  #measureAnew(): void {
    this.#least = Number.POSITIVE_INFINITY;
    this.#floorMs = Number.POSITIVE_INFINITY;
    this.#probing = true;
  }

  #setBound(bytes: number): void {
    this.#bound = Math.max(IN_FLIGHT_FLOOR, Math.min(this.#most, Math.round(bytes)));
    if (this.#cutFrom !== undefined && this.#bound >= this.#cutFrom.bound) this.#cutFrom = undefined;
  }
}
