import type { Logger } from "../runtime/logger.ts";

/** Where spans go, and how many CONNECTs begin a trace. */
export interface TracingOptions {
  /** Base URL of an OTLP receiver over HTTP, without `/v1/traces`. Empty: no traces. */
  readonly otlpEndpoint: string;
  readonly traceSamplingRatePerMillion: number;
}

/** The process that makes the spans: `service.name` and `service.instance.id`. */
export interface TracedService {
  readonly name: string;
  readonly id: string;
}

/** Where it is said that spans are lost. */
export type TracingLog = Pick<Logger, "warn">;

/** Values of a span. Undefined values are left out. */
export type SpanAttributes = Readonly<Record<string, string | number | undefined>>;

/** Makes the spans of a process and sends them. Times are those of `performance.now()`. */
export interface Tracing {
  /** Spans that a receiver has taken, and those that were dropped because it was slow, gone or refused them. */
  readonly counts: { readonly sent: number; readonly lost: number };
  /**
   * Begins a span, as a part of the trace that `parent` names (a W3C `traceparent`), or of a new one. Without a parent,
   * and for a parent that was not sampled, it may be one that nobody keeps.
   */
  begin(name: string, atMs: number, parent: string | undefined): TraceSpan;
  /** Sends what waits. */
  close(): Promise<void>;
}

export interface TraceSpan {
  /** Text for the maker of a part of this span: W3C Trace Context §3.2. */
  readonly traceparent: string;
  /** False: nobody keeps it, nor its parts. */
  readonly isKept: boolean;
  /** A part of this span that is over. */
  part(name: string, fromMs: number, toMs: number, attributes?: SpanAttributes): TraceSpan;
  /** `failure`: why the work of the span has failed. */
  end(atMs: number, attributes: SpanAttributes, failure?: string): void;
}
