import { deferred } from "../../shared/basics/promises.ts";

/** Round trips of which the least is shown. */
const KEPT_SAMPLES = 4;

interface UnderWay {
  readonly id: bigint;
  readonly sentAt: number;
  readonly measured: ReturnType<typeof deferred<number | undefined>>;
}

/**
 * Measures when a konnectivity-agent has read its packets. It answers a CLOSE_REQ for a connection that it does not
 * have with CLOSE_RSP at once, in the loop that reads all packets. HTTP/2's own PING would be answered by gRPC even
 * while that loop stands still.
 */
export class RoundTrips {
  readonly #send: (connectID: bigint) => void;
  /** Agents count their connections up from 1, and these down from -1. */
  #nextId = -1n;
  #underWay: UnderWay | undefined;
  readonly #samples: number[] = [];

  constructor(send: (connectID: bigint) => void) {
    this.#send = send;
  }

  /** The least of the last round trips, ms; 0: none yet. */
  get leastMs(): number {
    return this.#samples.length === 0 ? 0 : Math.min(...this.#samples);
  }

  /** For how long the present question has had no answer, ms. */
  get waitingMs(): number {
    return this.#underWay === undefined ? 0 : performance.now() - this.#underWay.sentAt;
  }

  /** Resolves with the time that the agent takes, ms, or `undefined` if the tunnel ends before. */
  measure(): Promise<number | undefined> {
    if (this.#underWay === undefined) {
      const id = this.#nextId--;
      this.#underWay = { id, sentAt: performance.now(), measured: deferred<number | undefined>() };
      this.#send(id);
    }
    return this.#underWay.measured.promise;
  }

  /** Returns whether this CLOSE_RSP is an answer to such a question. */
  onClosed(connectID: bigint): boolean {
    if (connectID >= 0n) return false;
    const { id, sentAt, measured } = this.#underWay ?? {};
    if (id === connectID && sentAt !== undefined) {
      this.#underWay = undefined;
      const ms = performance.now() - sentAt;
      this.#samples.push(ms);
      if (this.#samples.length > KEPT_SAMPLES) this.#samples.shift();
      measured?.resolve(ms);
    }
    return true;
  }

  /** The tunnel has ended. */
  stop(): void {
    this.#underWay?.measured.resolve(undefined);
  }
}
