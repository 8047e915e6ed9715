import type { RetryOptions } from "../../shared/basics/backoff.ts";
import type { FileDescriptors } from "../../shared/limits/file-descriptors.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { Tracing } from "../../shared/tracing/tracing.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AgentMetrics } from "./metrics.ts";
import type { AgentOptions } from "./options.ts";
import type { NameResolver } from "./servers.ts";

/** The parts of an agent of which each process has one. All folders of `agent/` share it. */
export interface AgentContext {
  readonly options: AgentOptions;
  readonly log: Logger;
  /** For events that a broken server can cause any number of times. */
  readonly throttledLog: ThrottledLog;
  readonly metrics: AgentMetrics;
  /** Memory that all links, sessions and streams may hold together. */
  readonly memory: MemoryAccount;
  readonly files: FileDescriptors;
  readonly resolver: NameResolver;
  /** The waits between attempts to connect. */
  readonly retry: RetryOptions;
  /** Undefined until the agent has started, and without `--otlp-endpoint`. */
  tracing(): Tracing | undefined;
  /** Serves a stream that a server has opened. */
  readonly onStream: (stream: Stream) => void;
}
