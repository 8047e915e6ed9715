import type { TurnQueue } from "../../shared/basics/timers.ts";
import type { InnerServers } from "../../shared/link/inner-tls.ts";
import type { WaitingConnections } from "../listeners/port-connections.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { UnauthenticatedCarriers } from "./admission.ts";
import type { Carrying } from "./carrying.ts";

/** The context that all agents' ports of a server share. The cluster of an agent is an argument of its own. */
export interface AgentsContext extends ServerContext {
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
  readonly carrying?: Carrying | undefined;
}
