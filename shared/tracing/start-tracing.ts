import type { Logger } from "../runtime/logger.ts";
import type { TracedService, Tracing, TracingOptions } from "./tracing.ts";

/** Traces of this process; `undefined` without an endpoint, and then nothing is loaded for it. */
export async function startTracing(
  options: TracingOptions,
  service: TracedService,
  log: Pick<Logger, "warn">,
): Promise<Tracing | undefined> {
  if (options.otlpEndpoint === "") return undefined;
  const { OtlpTracing } = await import("./otlp-tracing.ts");
  return new OtlpTracing(options, service, log);
}
