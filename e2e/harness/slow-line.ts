import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { Direction } from "./relayed-pair.ts";
import { SlowDirection } from "./slow-direction.ts";
import { listenOnLoopback } from "./targets/tcp.ts";

export interface SlowLineOptions {
  /** Each way. */
  readonly bytesPerSecond: number;
  /** Each way. */
  readonly queueBytes: number;
  /** Of the wire alone, half of it each way. */
  readonly rttMs: number;
}

/** A relay that is a slow uplink: one wire each way, shared by all connections. It loses nothing and cuts nobody. */
export class SlowLine implements AsyncDisposable {
  readonly host = "127.0.0.1";
  readonly #behind: { readonly host: string; readonly port: number };
  readonly #lanes: Readonly<Record<Direction, SlowDirection>>;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  /** Number of connections that were made over it. */
  connections = 0;
  /** Bytes delivered since the start. */
  readonly bytes: Record<Direction, number> = { forward: 0, backward: 0 };

  constructor(behind: { readonly host: string; readonly port: number }, options: SlowLineOptions) {
    this.#behind = behind;
    const { bytesPerSecond, queueBytes, rttMs } = options;
    const lane = (direction: Direction) =>
      new SlowDirection({ bytesPerSecond, queueBytes, delayMs: rttMs / 2 }, (length) => {
        this.bytes[direction] += length;
      });
    this.#lanes = { forward: lane("forward"), backward: lane("backward") };
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#relay(socket));
  }

  listen(): Promise<void> {
    return listenOnLoopback(this.#server);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Bytes that wait in front of the wire. */
  queued(direction: Direction): number {
    return this.#lanes[direction].queued;
  }

  /** Nothing arrives in this direction for this time. */
  stall(direction: Direction, ms: number): void {
    this.#lanes[direction].stall(ms);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const lane of Object.values(this.#lanes)) lane.stop();
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #relay(dialler: Socket): void {
    this.connections++;
    const server = connect({ host: this.#behind.host, port: this.#behind.port, allowHalfOpen: true, noDelay: true });
    for (const socket of [dialler, server]) {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    }
    this.#lanes.forward.join(dialler, server);
    this.#lanes.backward.join(server, dialler);
  }
}

/** Starts a slow line in front of `behind`. */
export async function startSlowLine(
  behind: { readonly host: string; readonly port: number },
  options: SlowLineOptions,
): Promise<SlowLine> {
  const line = new SlowLine(behind, options);
  await line.listen();
  return line;
}
