import { deferred } from "../../shared/basics/promises.ts";
import { PROBE_MS } from "../tunnels/opening.ts";
import type { AgentCall } from "./agent-call.ts";
import type { PacketSender } from "./packet-sender.ts";

/** Round trips of which the least is shown. */
const KEPT_SAMPLES = 4;
/**
 * An answer waits behind what the agent sends for its other connections: 64 KiB that gRPC has taken, and 4 KiB of each
 * connection. More than this, in bytes, is sent by an agent whose loop gives no answer.
 */
const BEFORE_ANSWER = 1024 * 1024;

interface UnderWay {
  readonly id: bigint;
  readonly sentAt: number;
  readonly measured: ReturnType<typeof deferred<number | undefined>>;
  /** How many writes there were with it, and what had come from the agent, when it was sent. */
  readonly written: number;
  readonly receivedBefore: number;
  /** Grows as long as question or answer may wait behind other bytes; as it was at the last look. */
  progress: number;
  isPinged: boolean;
  /** Since when all that was sent has been in the agent's hands, and nothing has moved. */
  stuckSince: number | undefined;
}

/**
 * Measures when a konnectivity-agent has read its packets. It answers a CLOSE_REQ for a connection that it does not
 * have with CLOSE_RSP at once, in the loop that reads all packets. gRPC answers HTTP/2's own PING even while that loop
 * is blocked, so the PING distinguishes a blocked loop from a slow line.
 */
export class RoundTrips {
  readonly #sender: PacketSender;
  readonly #call: AgentCall;
  /** Agents count their connections up from 1, and these down from -1. */
  #nextId = -1n;
  #underWay: UnderWay | undefined;
  /** Writes that HTTP/2 had taken at the last look. */
  #takenBefore = 0;
  readonly #samples: number[] = [];

  constructor(sender: PacketSender, call: AgentCall) {
    this.#sender = sender;
    this.#call = call;
  }

  /** The least of the last round trips, ms; 0: none yet. */
  get leastMs(): number {
    return this.#samples.length === 0 ? 0 : Math.min(...this.#samples);
  }

  /** The agent has had all that was sent for some time, and has not answered. */
  get standsStill(): boolean {
    const since = this.#underWay?.stuckSince;
    return since !== undefined && performance.now() - since > PROBE_MS;
  }

  /** Resolves with the time that the agent takes, ms, or `undefined` if the tunnel ends before. */
  measure(): Promise<number | undefined> {
    this.#underWay ??= this.#ask();
    return this.#underWay.measured.promise;
  }

  #ask(): UnderWay {
    const id = this.#nextId--;
    this.#sender.control({ case: "closeRequest", value: { connectID: id } });
    return {
      ...{ id, sentAt: performance.now(), measured: deferred<number | undefined>() },
      ...{ written: this.#sender.written, receivedBefore: this.#call.received },
      ...{ progress: 0, isPinged: false, stuckSince: undefined },
    };
  }

  /** Called now and then: asks an agent that takes nothing more, and judges one that has not answered. */
  look(): void {
    const { taken, written } = this.#sender;
    if (this.#underWay !== undefined) this.#judge(this.#underWay);
    else if (taken < written && taken === this.#takenBefore) void this.measure();
    this.#takenBefore = taken;
  }

  #judge(question: UnderWay): void {
    const progress = this.#progressOf(question);
    if (progress !== question.progress) {
      question.progress = progress;
      question.stuckSince = undefined;
    } else if (question.stuckSince === undefined && !question.isPinged) {
      question.isPinged = true;
      this.#call.ping((isAnswered) => {
        question.isPinged = false;
        if (isAnswered && this.#progressOf(question) === progress) question.stuckSince = performance.now();
      });
    }
  }

  #progressOf({ written, receivedBefore }: UnderWay): number {
    return Math.min(this.#sender.taken, written) + Math.min(this.#call.received - receivedBefore, BEFORE_ANSWER);
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
