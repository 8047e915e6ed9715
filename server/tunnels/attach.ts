import { randomUUID } from "node:crypto";
import type { TLSSocket } from "node:tls";
import type { WebSocket } from "ws";
import { acceptLink } from "../../shared/link/accept.ts";
import type { Hello, Welcome } from "../../shared/link/control.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import { CloseCode, HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";
import type { ClusterTunnels, Place } from "./registry.ts";
import { Tunnel } from "./tunnel.ts";

export type AttachOptions = Pick<
  ServerOptions,
  "serverId" | "helloTimeoutMs" | "keepaliveMs" | "initialWindow" | "maxWindow" | "sessionBudget" | "maxStreams"
>;

export interface AttachDeps {
  readonly options: AttachOptions;
  readonly cluster: ClusterTunnels;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** True from SIGTERM on. */
  draining(): boolean;
}

/** One agent, from its upgrade to the end of its tunnel. `identity` is what its credential proves. */
export async function attach(ws: WebSocket, socket: TLSSocket, identity: string, deps: AttachDeps): Promise<void> {
  const { options, cluster, metrics, log } = deps;
  const remote = `${socket.remoteAddress}:${socket.remotePort}`;
  let place: Place | undefined;
  let greeted = false;
  try {
    const { link, hello } = await acceptLink(ws, socket, {
      helloTimeoutMs: options.helloTimeoutMs,
      keepaliveMs: options.keepaliveMs,
      remote,
      welcome: (words) => {
        greeted = true;
        place = reserve(words, identity, deps);
        return welcome(options);
      },
    });
    const { agentId, instance, software } = hello;
    const agent = { agentId, instance, identity, software: printable(software) };
    const tunnel = new Tunnel(agent, link, {
      initialWindow: options.initialWindow,
      maxWindow: options.maxWindow,
      budget: options.sessionBudget,
      maxStreams: options.maxStreams,
    });
    place?.hold(tunnel);
    metrics.tunnelOpened(cluster.name);
    const line = { cluster: cluster.name, agent: agentId, tunnel: tunnel.id, remote };
    log.info({ ...line, identity, software: agent.software }, "tunnel opened");

    const reason = await tunnel.closedWith;
    metrics.tunnelClosed(cluster.name, reason === undefined ? "closed" : "lost", tunnel.resetForMemory);
    log[reason === undefined ? "info" : "warn"](
      { ...line, ...(reason && { reason: printable(reason.message) }) },
      reason === undefined ? "tunnel closed" : "tunnel lost",
    );
  } catch (error) {
    // Until its hello, what ends a link is the agent's doing or the network's; later, it is a refusal or our bug.
    if (error instanceof LinkRefused || !greeted) refusedAfterUpgrade(error, remote, identity, deps);
    else {
      ws.terminate();
      metrics.agentRefused("internal");
      log.error({ err: error, remote, identity }, "agent refused");
    }
  } finally {
    place?.release();
  }
}

/** The hello's words may only agree with what the credential says (design: "Trust"). */
function reserve(hello: Hello, identity: string, { cluster, draining }: AttachDeps): Place {
  if (draining()) throw new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  if (hello.cluster !== undefined && hello.cluster !== cluster.name) {
    throw new LinkRefused({
      closeCode: CloseCode.forbidden,
      reason: `this certificate belongs to cluster "${cluster.name}", not to "${printable(hello.cluster, 40)}" (--cluster)`,
    });
  }
  return cluster.reserve({ agentId: hello.agentId, instance: hello.instance, identity });
}

function welcome(options: AttachOptions): Welcome {
  return {
    type: "welcome",
    version: HANDSHAKE_VERSION,
    serverId: options.serverId,
    link: `${options.serverId}/${randomUUID()}`,
    keepaliveMs: options.keepaliveMs,
    initialWindow: options.initialWindow,
  };
}

function refusedAfterUpgrade(error: unknown, remote: string, identity: string, { metrics, log }: AttachDeps): void {
  const refusal = error instanceof LinkRefused ? error : undefined;
  metrics.agentRefused(String(refusal?.closeCode ?? "hello"));
  const reason = printable(refusal?.reason ?? (error instanceof Error ? error.message : String(error)));
  log.warn({ remote, identity, code: refusal?.closeCode, reason }, "agent refused");
}
