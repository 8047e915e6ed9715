import { once } from "node:events";
import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";
import { until } from "../../../shared/basics/testing/wait.ts";
import { IncomingConnection } from "../../../shared/listen/incoming-connection.ts";
import { CulvertError } from "../../../shared/outcomes.ts";
import { createLogger } from "../../../shared/runtime/logger.ts";
import { OpenConnects } from "../../cluster-runtime/open-connects.ts";
import { WaitingConnections } from "../../listeners/port-connections.ts";
import { ServerMetrics } from "../../metrics/server-metrics.ts";
import type { ServerOptions } from "../../options/options.ts";
import type { TokenVerifier } from "../../tokens/verifier.ts";
import { contextWithCluster } from "../../tunnels/testing/context.ts";
import type { FakeAgent } from "../../tunnels/testing/fake-agent.ts";
import type { CallerHost } from "../authenticate.ts";
import { CallerListeners } from "../caller-listeners.ts";

export const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";
export const CONNECT = "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/** The log line of a finished connection. */
export interface Line {
  readonly level: string;
  readonly msg: string;
  readonly outcome?: string;
  readonly cluster?: string;
  readonly caller?: string;
  readonly target?: string;
  readonly agent?: string;
  readonly bytesUp?: number;
  readonly bytesDown?: number;
  readonly endedBy?: string;
  readonly reason?: string;
}

/**
 * A callers' listener on loopback with fake agents behind it; `verifier`: its callers send tokens; `objection`: why
 * none may come from its address.
 */
export async function start(
  agents: readonly FakeAgent[],
  options: Partial<ServerOptions> & {
    draining?: boolean;
    readonly filesUsedUp?: boolean;
    readonly verifier?: TokenVerifier;
    readonly objection?: CulvertError;
  } = {},
) {
  const { verifier } = options;
  const lines: Line[] = [];
  const log = createLogger({
    level: "debug",
    format: "json",
    name: "test",
    destination: { write: (line: string) => void lines.push(JSON.parse(line)) },
  });
  const dropped = { count: 0 };
  const metrics = Object.assign(new ServerMetrics({ processMetrics: false }), {
    waitingDropped: () => dropped.count++,
  });
  const bounds = {
    connectTimeoutMs: 2_000,
    dialTimeoutMs: 1_000,
    agentAckTimeoutMs: 500,
    agentWaitMs: 50,
    maxTokenVerifications: 100,
    maxPendingConnects: 100,
    establishedGapMs: 10,
    stallTimeoutMs: 0,
    headerLimit: 16 * 1024,
    headerTimeoutMs: 30_000,
    maxWaitingConnections: 100,
  };
  const { context, cluster } = contextWithCluster(
    { ...bounds, ...options },
    { log, metrics, draining: () => options.draining ?? false },
  );
  if (options.filesUsedUp) {
    context.files.requireRoom = () => {
      throw new CulvertError("overloaded", "no files");
    };
  }
  const { unauthenticatedMemory } = context;
  const join = (agent: FakeAgent) => cluster.places.reserve(agent.tunnel.agent).join(agent.tunnel);
  for (const agent of agents) join(agent);
  const open = new OpenConnects();
  const rules = {
    verifier,
    identities: [],
    rule: "a list",
    ca: undefined,
    open,
    objection: () => options.objection,
    trust: { crlFault: () => undefined },
  };
  const host: CallerHost =
    verifier === undefined ? { kind: "unix", tunnels: cluster } : { kind: "tls", tunnels: cluster, ...rules };
  const callers = new CallerListeners(new WaitingConnections(100), context);
  const onSocket = (socket: Socket) => {
    const connection = new IncomingConnection(socket);
    connection.handedOn(socket);
    callers.accept(host, connection);
  };
  const server = createServer({ allowHalfOpen: true }, onSocket).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    ...{ cluster, open },
    unauthenticatedMemory,
    dropped,
    callers,
    join,
    lines,
    metrics,
    call: () => new Caller((server.address() as AddressInfo).port),
    [Symbol.asyncDispose]: async () => {
      server.close();
      callers.resetAll();
      for (const agent of agents) agent.cut();
    },
  };
}

/** A caller that keeps each read apart. */
export class Caller {
  readonly socket: Socket;
  readonly reads: string[] = [];
  ended = false;

  constructor(port: number) {
    this.socket = dial({ port, host: "127.0.0.1", allowHalfOpen: true });
    this.socket.on("data", (chunk) => this.reads.push(chunk.toString("latin1")));
    this.socket.on("end", () => {
      this.ended = true;
    });
    this.socket.on("error", () => {});
  }

  get text(): string {
    return this.reads.join("");
  }

  /** Sends and waits for a complete answer's head. */
  async ask(request: string): Promise<string> {
    this.socket.write(request, "latin1");
    await until(() => this.text.includes("\r\n\r\n") || this.socket.destroyed);
    return this.text;
  }
}
