import type { TurnQueue } from "../../shared/basics/timers.ts";
import type { InnerServers } from "../../shared/link/inner-tls.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { WaitingConnections } from "../listeners/port-connections.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ServerCount } from "../replicas/server-count.ts";
import type { Links } from "../tunnels/links.ts";
import type { UnauthenticatedCarriers } from "./admission.ts";
import type { Carrying } from "./carrying.ts";

/** What all agents' ports of a server share. The cluster of an agent is an argument of its own. */
export interface AgentsContext {
  readonly options: ServerOptions;
  readonly links: Links;
  /** Sent to every agent, in its welcome and whenever it changes. */
  readonly servers: Pick<ServerCount, "value" | "onChange">;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  readonly throttledLog: ThrottledLog;
  /** True from SIGTERM on. */
  draining(): boolean;
  /** The waiting connections of all TCP ports together. */
  readonly waiting: WaitingConnections;
  /** Hellos of all agents wait in it. */
  readonly turns: TurnQueue;
  readonly innerServers: InnerServers;
  /** Unauthenticated carriers of all ports together whose hello has not come. */
  readonly beforeHello: UnauthenticatedCarriers;
  /** Unauthenticated carriers whose hello asks for inner TLS. */
  readonly innerHandshakes: UnauthenticatedCarriers;
  /** Present with a directory: carries resumes of other servers' links to these. */
  readonly carrying?: Pick<Carrying, "ask" | "size"> | undefined;
}
