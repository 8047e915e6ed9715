import { formatTarget, type Target } from "../../shared/address/target.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { CulvertError, type OutcomeCode, printable } from "../../shared/outcomes.ts";
import { LEADS_BACK, leftMs } from "../tunnels/opening.ts";
import type { OpenOptions } from "../tunnels/tunnel.ts";
import type { AgentStream } from "./agent-stream.ts";

/** A dial that has no answer after this time, ms, asks whether the agent reads its packets at all. */
const ASK_AFTER_MS = 300;

/** The parts of a tunnel that a dial uses. */
interface DiallingTunnel {
  readonly agent: { readonly agentId: string };
  /** Resolves when the agent has read all packets that were sent before. */
  roundTrip(): Promise<number | undefined>;
  /** The agent has not read the DIAL_REQ in time. */
  onSilence(): void;
}

/**
 * One dial, from DIAL_REQ to DIAL_RSP. The protocol has no ACK. A dial that takes longer is followed by a packet which
 * the agent answers as soon as it has read it (`RoundTrips`), and that is the ACK.
 */
export class Dial {
  readonly #tunnel: DiallingTunnel;
  readonly #target: Target;
  readonly #options: OpenOptions;
  readonly #answered = deferred<AgentStream>();
  /** Resolves with the connection; rejects with a `CulvertError`. */
  readonly promise = this.#answered.promise;
  #timer: NodeJS.Timeout | undefined;
  #isAcknowledged = false;
  #isOver = false;

  constructor(target: Target, tunnel: DiallingTunnel, options: OpenOptions) {
    this.#target = target;
    this.#tunnel = tunnel;
    this.#options = options;
    options.cancellation.onCancelled = () => this.#fail(options.cancellation.reason as CulvertError);
    this.#timer = setTimeout(() => this.#ask(), Math.min(ASK_AFTER_MS, leftMs(options)));
  }

  #ask(): void {
    const { ackTimeoutMs } = this.#options;
    this.#timer = setTimeout(
      () => this.#onSilence(),
      Math.max(1, Math.min(ackTimeoutMs - ASK_AFTER_MS, leftMs(this.#options))),
    );
    void this.#tunnel.roundTrip().then((ms) => {
      if (ms === undefined || this.#isOver) return;
      this.#isAcknowledged = true;
      this.#options.watch?.onAcknowledged();
      this.#waitForAnswer();
    });
  }

  #onSilence(): void {
    this.#tunnel.onSilence();
    // Without another agent there is nothing to lose by waiting.
    if (!this.#options.hasAlternative() && leftMs(this.#options) > 1) this.#waitForAnswer();
    else this.#onDeadline();
  }

  #waitForAnswer(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#onDeadline(), Math.max(1, leftMs(this.#options)));
  }

  #onDeadline(): void {
    const agent = `agent "${this.#tunnel.agent.agentId}"`;
    const acknowledged = this.#isAcknowledged;
    const sentence = acknowledged
      ? `${agent} took the request for ${formatTarget(this.#target)} but did not answer in time`
      : `${agent} does not respond: check its process and the path to it`;
    this.#fail(new CulvertError("agent_timeout", sentence, { acknowledged }));
  }

  /** The agent could not reach the target, and says this. */
  onError(text: string): void {
    const sentence = printable(text) || "the agent has closed the dial";
    this.#options.watch?.onAnswer({ ok: false, error: codeOf(text), detail: sentence });
    this.#fail(new CulvertError(codeOf(text), sentence, { refusedBy: "agent" }));
  }

  /** Returns false if nobody wants the connection any more. */
  onConnected(stream: () => AgentStream): boolean {
    if (this.#isOver) return false;
    // The agent does not say which address it has dialled, so only a target that is one can be compared.
    if (this.#options.leadsBack?.(formatTarget(this.#target)) === true) {
      this.#fail(new CulvertError("forbidden", LEADS_BACK));
      return false;
    }
    this.#options.watch?.onAnswer({ ok: true });
    this.#finish();
    this.#answered.resolve(stream());
    return true;
  }

  onLost(cause: Error | undefined): void {
    const sentence = `the connection to agent "${this.#tunnel.agent.agentId}" was lost`;
    this.#fail(new CulvertError("agent_lost", sentence, { cause }));
  }

  #fail(error: CulvertError): void {
    if (this.#isOver) return;
    this.#finish();
    this.#answered.reject(error);
  }

  #finish(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#options.cancellation.onCancelled = undefined;
  }
}

/** How Go ends the text of a failed dial, which is all that DIAL_RSP says. */
const TEXTS: readonly (readonly [end: RegExp, OutcomeCode])[] = [
  [/connection refused$/, "dial_refused"],
  [/(?:no route to host|network is unreachable|host is down)$/, "dial_unreachable"],
  [/(?:no such host|server misbehaving|missing address|invalid port)\b.*$/, "dial_name"],
  [/connection reset by peer$/, "dial_reset"],
  [/(?:i\/o timeout|connection timed out|deadline exceeded)$/, "dial_timeout"],
];

function codeOf(text: string): Extract<OutcomeCode, `dial_${string}`> {
  const row = TEXTS.find(([end]) => end.test(text));
  return (row?.[1] ?? "dial_unreachable") as Extract<OutcomeCode, `dial_${string}`>;
}
