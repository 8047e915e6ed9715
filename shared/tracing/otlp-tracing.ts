import { type Context, ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace } from "@opentelemetry/api";
import { ExportResultCode, parseTraceParent } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import { version } from "../basics/program.ts";
import { printable } from "../outcomes.ts";
import type { SpanAttributes, TracedService, TraceSpan, Tracing, TracingLog, TracingOptions } from "./tracing.ts";

/** Spans that wait for the receiver. More are dropped: a receiver that is slow or gone costs memory for these. */
const MOST_WAITING = 2_048;
/** Spans wait for others at most this time, ms: users look for traces that they have just made. */
const SEND_EVERY_MS = 1_000;
/** Time for the spans that wait when the process ends, ms. */
const CLOSE_MS = 500;
const ONE_MILLION = 1_000_000;

/** Spans by OpenTelemetry's SDK, sent as protobuf over HTTP in batches. */
export class OtlpTracing implements Tracing {
  readonly counts = { sent: 0, lost: 0 };
  readonly #provider: TracerProvider;
  readonly #tracer;

  constructor(
    { otlpEndpoint, traceSamplingRatePerMillion }: TracingOptions,
    { name, id }: TracedService,
    log: TracingLog,
  ) {
    const exporter = new CountedExporter(this.counts, otlpEndpoint, log);
    this.#provider = new TracerProvider({
      resource: resourceFromAttributes({
        "service.name": name,
        "service.instance.id": id,
        "service.version": version(),
      }),
      sampler: new ParentBasedSampler({
        root: new TraceIdRatioBasedSampler(traceSamplingRatePerMillion / ONE_MILLION),
      }),
      spanProcessors: [new CountedProcessor(exporter, this.counts)],
    });
    this.#tracer = this.#provider.getTracer("culvert", version());
  }

  begin(name: string, atMs: number, parent: string | undefined): TraceSpan {
    const remote = parent === undefined ? null : parseTraceParent(parent);
    const context = remote === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...remote, isRemote: true });
    // The clock as it is now, and the same for all parts: that of `performance.timeOrigin` may have been set since.
    const dateOf = (ms: number): number => clock + ms;
    const clock = Date.now() - performance.now();
    return this.#span(name, atMs, {}, { context, dateOf, kind: SpanKind.SERVER });
  }

  #span(name: string, atMs: number, attributes: SpanAttributes, { context, dateOf, kind }: Around): TraceSpan {
    const options = { kind, startTime: dateOf(atMs), attributes: given(attributes) };
    const span = this.#tracer.startSpan(name, options, context);
    const inside = { context: trace.setSpan(context, span), dateOf, kind: SpanKind.INTERNAL };
    const { traceId, spanId, traceFlags } = span.spanContext();
    const isKept = (traceFlags & TraceFlags.SAMPLED) !== 0;
    return {
      traceparent: `00-${traceId}-${spanId}-${isKept ? "01" : "00"}`,
      isKept,
      part: (part, fromMs, toMs, facts = {}) => {
        const child = this.#span(part, fromMs, facts, inside);
        child.end(toMs, {});
        return child;
      },
      end: (endMs, facts, failure) => {
        span.setAttributes(given(facts));
        if (failure !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: failure });
        span.end(dateOf(endMs));
      },
    };
  }

  async close(): Promise<void> {
    const inTime = new Promise((resolve) => setTimeout(resolve, CLOSE_MS).unref());
    await Promise.race([this.#provider.shutdown().catch(() => {}), inTime]);
  }
}

/** The parent of a span, and its times as milliseconds since 1970. */
interface Around {
  readonly context: Context;
  readonly dateOf: (ms: number) => number;
  readonly kind: SpanKind;
}

function given(attributes: SpanAttributes): Record<string, string | number> {
  const entries = Object.entries(attributes).filter(
    (entry): entry is [string, string | number] => entry[1] !== undefined,
  );
  return Object.fromEntries(entries);
}

/** Counts the spans that a receiver has taken, and those that it has not. */
class CountedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #counts: { sent: number; lost: number };
  readonly #log: TracingLog;
  /** The last batch was not taken. */
  #isLosing = false;
  /** Spans that the processor has given away. */
  taken = 0;

  constructor(counts: { sent: number; lost: number }, endpoint: string, log: TracingLog) {
    this.#counts = counts;
    this.#log = log;
    this.#exporter = new OTLPTraceExporter({ url: new URL("v1/traces", withSlash(endpoint)).href });
  }

  export(spans: ReadableSpan[], done: Parameters<SpanExporter["export"]>[1]): void {
    this.taken += spans.length;
    this.#exporter.export(spans, (result) => {
      const isTaken = result.code === ExportResultCode.SUCCESS;
      this.#counts[isTaken ? "sent" : "lost"] += spans.length;
      if (!isTaken && !this.#isLosing) {
        const reason = printable(result.error?.message ?? "refused");
        this.#log.warn({ reason, spans: spans.length }, "spans are lost: --otlp-endpoint does not take them");
      }
      this.#isLosing = !isTaken;
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }
}

function withSlash(url: string): string {
  return url.endsWith("/") ? url : `${url}/`;
}

/** The SDK drops spans without a word when `MOST_WAITING` wait: here they are counted. */
class CountedProcessor extends BatchSpanProcessor {
  readonly #exporter: CountedExporter;
  readonly #counts: { lost: number };
  #ended = 0;

  constructor(exporter: CountedExporter, counts: { lost: number }) {
    super({ exporter, maxQueueSize: MOST_WAITING, scheduledDelayMillis: SEND_EVERY_MS });
    this.#exporter = exporter;
    this.#counts = counts;
  }

  override onEnd(span: ReadableSpan): void {
    if (this.#ended - this.#exporter.taken >= MOST_WAITING) this.#counts.lost++;
    else {
      this.#ended++;
      super.onEnd(span);
    }
  }
}
