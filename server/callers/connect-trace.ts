import type { IncomingHttpHeaders } from "node:http";
import { type CulvertError, outcome, printable } from "../../shared/outcomes.ts";
import type { SpanAttributes, TraceSpan } from "../../shared/tracing/tracing.ts";
import type { OpenAnswer } from "../../shared/wire/stream-head.ts";
import type { ServerContext } from "../tunnels/context.ts";

/**
 * The span of one CONNECT, which ends with its answer, and the spans of its steps (docs/traces.md).
 *
 * ```
 *  CONNECT ──────────────────────────────────────────────▶ 200
 *    authenticate ─▶ pick ─▶ open ──────────────────────▶
 *                              dial for the server ─────▶   made by the agent, or here from the times in its answer
 *                                resolve ─▶ policy ─▶ dial
 * ```
 */
export class ConnectTrace {
  readonly #span: TraceSpan;
  /** The current step, and its start. */
  #step = "authenticate";
  #since: number;

  /** `undefined` without tracing, and where this trace is not kept. */
  static begin(atMs: number, traceparent: string | undefined, { tracing }: ServerContext): ConnectTrace | undefined {
    const span = tracing()?.begin("CONNECT", atMs, traceparent);
    return span?.isKept === true ? new ConnectTrace(span, atMs) : undefined;
  }

  private constructor(span: TraceSpan, atMs: number) {
    this.#span = span;
    this.#since = atMs;
  }

  get traceparent(): string {
    return this.#span.traceparent;
  }

  onAuthenticated(): void {
    this.#next("pick");
  }

  /** `before`: why the agent or server before could not be used. */
  onPicked(before: CulvertError | undefined): void {
    this.#next("open", before);
  }

  onAnswer(answer: OpenAnswer): void {
    if (!answer.ok || answer.traced === true || answer.times === undefined) return;
    const { dnsMs, policyMs = 0, dialMs } = answer.times;
    const now = performance.now();
    const [resolved, permitted] = [now - dialMs - policyMs, now - dialMs];
    const span = this.#span.part("dial for the server", resolved - dnsMs, now);
    span.part("resolve", resolved - dnsMs, resolved);
    span.part("policy", resolved, permitted);
    span.part("dial", permitted, now);
  }

  /** The CONNECT is answered; `refusal`: not with 200. */
  end(attributes: SpanAttributes, refusal?: CulvertError): void {
    const now = this.#next("", refusal);
    const { http } = refusal === undefined ? { http: 200 } : outcome(refusal.code);
    const isOurs = http !== undefined && http >= 500;
    this.#span.end(
      now,
      { ...attributes, "http.response.status_code": http, "error.type": refusal?.code },
      isOurs && refusal ? printable(refusal.message) : undefined,
    );
  }

  #next(step: string, failure?: CulvertError): number {
    const now = performance.now();
    this.#span.part(this.#step, this.#since, now, failure && { "error.type": failure.code });
    this.#step = step;
    this.#since = now;
    return now;
  }
}

/** A caller's trace; of several, none is meant. */
export function traceparentIn(headers: IncomingHttpHeaders): string | undefined {
  const { traceparent } = headers;
  return typeof traceparent === "string" ? traceparent : undefined;
}
