import type { Logger } from "../shared/runtime/logger.ts";
import type { ThrottledLog } from "../shared/runtime/throttled-log.ts";
import type { Dialer } from "./dialer.ts";
import type { SidecarMetrics } from "./metrics.ts";
import type { SidecarOptions } from "./options.ts";

/** The parts of a sidecar of which each process has one. */
export interface SidecarContext {
  readonly options: SidecarOptions;
  readonly log: Logger;
  /** For events that clients can cause any number of times. */
  readonly throttledLog: ThrottledLog;
  readonly metrics: SidecarMetrics;
  readonly dialer: Dialer;
}
