import type { TracedService, Tracing, TracingLog, TracingOptions } from "./tracing.ts";

/** Traces of this process; `undefined` without an endpoint, and then nothing is loaded for it. */
export async function startTracing(
  options: TracingOptions,
  service: TracedService,
  log: TracingLog,
): Promise<Tracing | undefined> {
  if (options.otlpEndpoint === "") return undefined;
  const { OtlpTracing } = await import("./otlp-tracing.ts");
  return new OtlpTracing(options, service, log);
}
