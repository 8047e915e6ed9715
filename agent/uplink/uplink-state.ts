import type { RetryOptions } from "../../shared/basics/backoff.ts";
import type { LinkMetrics } from "../../shared/runtime/common-metrics.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Connection, ConnectionOwner } from "./connection.ts";
import type { Lesson, Path } from "./path.ts";

/** The state of an uplink, with the data that exists in it only. */
export type UplinkState =
  | { readonly state: "waiting"; readonly untilMs: number; readonly timer: NodeJS.Timeout }
  | {
      readonly state: "connecting";
      readonly abort: AbortController;
      /** The server that drained this agent asked for so long a pause; another one may accept it at once. */
      readonly askedMs: number;
    }
  | { readonly state: "connected"; readonly connection: Connection; readonly sinceMs: number }
  /** The carrier is lost, and the connection dials another one by itself. */
  | { readonly state: "suspended"; readonly connection: Connection; readonly sinceMs: number }
  | { readonly state: "draining"; readonly connection: Connection }
  | { readonly state: "closed"; readonly reason: string };

/** What an uplink counts. */
export interface UplinkMetrics {
  readonly links: Pick<LinkMetrics, "suspended" | "resumed" | "resumeFailed" | "graceOver">;
  uplinkConnected(): void;
  /** `label`: a code of our own, never a peer's text. */
  attemptFailed(label: string): void;
  /** `resetForMemory`: streams of the session that were reset because it held too much memory. */
  sessionEnded(resetForMemory: number): void;
  pathLearned(lesson: Lesson["lesson"]): void;
}

export interface UplinkDeps {
  /** The server's URL, for the log. */
  readonly server: string;
  attempt(owner: ConnectionOwner, signal: AbortSignal): Promise<Connection>;
  onStream(stream: Stream): void;
  /** Called after each change of the state. */
  readonly onState?: () => void;
  readonly retry: RetryOptions;
  /** How long streams of a link may go on after the agent's identity has changed, ms. */
  readonly drainTimeoutMs: number;
  /** Learns from each lost carrier. */
  readonly path: Path;
  readonly metrics: UplinkMetrics;
  readonly log: Logger;
}
