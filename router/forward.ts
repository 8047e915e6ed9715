import type { Socket } from "node:net";
import { formatTarget } from "../shared/address/target.ts";
import { TargetDial } from "../shared/dial/dial-target.ts";
import { answerAndEnd } from "../shared/http/connection.ts";
import type { FileDescriptors } from "../shared/limits/file-descriptors.ts";
import { UNRECOGNIZED_NAME_ALERT } from "../shared/listen/client-hello.ts";
import { peerOf } from "../shared/listen/incoming-connection.ts";
import { type Endpoint, encodeProxyV2 } from "../shared/listen/preface.ts";
import { toCulvertError } from "../shared/outcomes.ts";
import { resetSocket } from "../shared/relay/reset.ts";
import { splice } from "../shared/relay/splice.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import type { ThrottledLog } from "../shared/runtime/throttled-log.ts";
import type { Backend, Backends } from "./backends.ts";
import { type ClientHellos, RefusedConnection } from "./client-connections.ts";
import type { RouterMetrics } from "./metrics.ts";
import type { RouterOptions } from "./options.ts";
import type { Route, RouteStore } from "./routes.ts";

/** The parts of a router of which each process has one. */
export interface RouterContext {
  readonly options: RouterOptions;
  readonly log: Logger;
  /** For events that clients can cause any number of times. */
  readonly throttledLog: ThrottledLog;
  readonly metrics: RouterMetrics;
  readonly files: FileDescriptors;
  readonly store: RouteStore;
  readonly backends: Backends;
  readonly hellos: ClientHellos;
}

/**
 * Forwards one connection, from its ClientHello to its last byte. The socket has an error listener and allows
 * half-open.
 */
export async function forward(client: Socket, context: RouterContext): Promise<void> {
  const ends = endsOf(client);
  const remote = ends === undefined ? "unknown" : shown(peerOf(client));
  let serverName: string | undefined;
  try {
    requireFiles(context);
    serverName = await context.hellos.read(client);
    const route = context.store.table.find(serverName);
    if (route === undefined) throw new RefusedConnection("unknown_name", "no route has its server name");
    requireFiles(context); // many may have arrived before the first dial
    const { backend, socket, dialMs } = await dialBackend(client, route, context);
    if (route.sendProxy === "v2") socket.write(encodeProxyV2(ends));
    await join(client, socket, context, { route, serverName, remote, backend, dialMs });
  } catch (error) {
    refuse(client, error, { remote, ...(serverName !== undefined && { serverName }) }, context);
  }
}

function requireFiles({ files: { shortage } }: RouterContext): void {
  if (shortage !== undefined) throw new RefusedConnection("no_files", shortage);
}

/** Connects to the first backend that can be reached. Avoided ones are tried last. */
async function dialBackend(client: Socket, route: Route, context: RouterContext) {
  const { options, backends, metrics, throttledLog, files } = context;
  const started = performance.now();
  for (const backend of backends.inOrder(route, started)) {
    const leftMs = started + options.connectTimeoutMs - performance.now();
    if (leftMs <= 0) break;
    const dialling = new TargetDial({ target: backend.target, timeoutMs: Math.min(options.dialTimeoutMs, leftMs) });
    const cancel = (): void => dialling.cancel();
    client.on("close", cancel);
    backends.enter(backend);
    const dialledAt = performance.now();
    try {
      const socket = await dialling.promise;
      const dialMs = performance.now() - dialledAt;
      backend.reached();
      metrics.backendReached(route.name, dialMs);
      return { backend, socket, dialMs };
    } catch (error) {
      backends.leave(backend);
      if (client.destroyed) throw new RefusedConnection("gone", "it was closed while its backend was dialled");
      const { code, cause } = toCulvertError(error);
      const shortage = files.shortageBehind(cause);
      // No other backend could be dialled either.
      if (shortage !== undefined) throw new RefusedConnection("no_files", shortage);
      // A shortage of this process (ports, memory) is not the backend's fault.
      const isItsFault = code.startsWith("dial_");
      if (isItsFault) backend.avoid(performance.now() + options.backendRetryMs);
      metrics.backendFailed(route.name);
      const errno = (cause as NodeJS.ErrnoException | undefined)?.code;
      const fields = { route: route.name, backend: backend.address, ...(isItsFault && { code }), errno };
      throttledLog.write("warn", fields, "backend not reached");
    } finally {
      client.off("close", cancel);
    }
  }
  throw new RefusedConnection("unreachable", `no backend of route ${route.name} can be reached`);
}

interface JoinedConnection {
  readonly route: Route;
  readonly serverName: string;
  readonly remote: string;
  readonly backend: Backend;
  readonly dialMs: number;
}

/** Carries bytes until both directions have ended. */
async function join(client: Socket, socket: Socket, context: RouterContext, joined: JoinedConnection): Promise<void> {
  const { route, serverName, remote, backend } = joined;
  const startedAt = performance.now();
  const { error, ...totals } = await splice(client, socket, {
    stallTimeoutMs: context.options.stallTimeoutMs,
    resetCaller: () => resetSocket(client),
    resetTarget: () => resetSocket(socket),
    corkCaller: true,
    corkTarget: true,
  });
  const durationMs = performance.now() - startedAt;
  context.backends.leave(backend);
  context.metrics.connectionFinished({ route: route.name, ...totals, durationMs });
  const times = { dialMs: Math.round(joined.dialMs), durationMs: Math.round(durationMs) };
  const fields = { route: route.name, serverName, remote, backend: backend.address, ...times, ...totals };
  context.log.info({ ...fields, ...(error !== undefined && { reason: error.message }) }, "connection closed");
}

function refuse(client: Socket, error: unknown, fields: object, { metrics, log, throttledLog }: RouterContext): void {
  if (!(error instanceof RefusedConnection)) throw error;
  const line = { ...fields, reason: error.message };
  metrics.refused(error.code);
  if (error.hasAlert) answerAndEnd(client, UNRECOGNIZED_NAME_ALERT);
  else resetSocket(client);
  // Health checks of load balancers and port scans end without a byte.
  if (error.code === "gone") log.debug(line, "connection refused");
  else throttledLog.write(error.hasAlert ? "info" : "warn", line, MESSAGES[error.code]);
}

/** Each reason has its own message, because the log is throttled by message. */
const MESSAGES = {
  unreadable: "connection refused: its ClientHello cannot be read",
  no_name: "connection refused: it has no server name",
  unknown_name: "connection refused: no route has its server name",
  unreachable: "connection refused: no backend can be reached",
  late: "connection dropped (--hello-timeout)",
  crowded: "connection dropped (--max-hellos)",
  full: "connection dropped (--max-connections)",
  no_files: "connection dropped: file descriptors are nearly used up",
} as const satisfies Partial<Record<RefusedConnection["code"], string>>;

/** Call it while the connection is open; a closed socket has no addresses. */
function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket) {
  if (!remoteAddress || remotePort === undefined || !localAddress || localPort === undefined) return undefined;
  const source: Endpoint = { address: remoteAddress, port: remotePort };
  return { source, destination: { address: localAddress, port: localPort } };
}

function shown({ address, port }: Endpoint): string {
  return formatTarget({ host: address, port });
}
