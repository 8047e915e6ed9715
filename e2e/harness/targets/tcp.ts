import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

/** Something a caller can ask for: listens on loopback until it is disposed. */
export interface TargetServer extends AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** `host:port`, as a CONNECT says it. */
  readonly address: string;
}

/** A TCP target whose behaviour is one function for each accepted socket. */
export class TcpTarget implements TargetServer {
  readonly host = "127.0.0.1";
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Connections accepted since the start. */
  accepted = 0;

  constructor(server: Server) {
    this.#server = server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get address(): string {
    return `${this.host}:${this.port}`;
  }

  /** Connections open now. */
  get open(): number {
    return this.#sockets.size;
  }

  sockets(): Iterable<Socket> {
    return this.#sockets;
  }

  /** Holds a socket until it closes, so that disposal leaves none behind. */
  track(socket: Socket): void {
    this.accepted++;
    this.#sockets.add(socket);
    socket.on("error", ignore);
    socket.on("close", () => this.#sockets.delete(socket));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (this.#server.listening) await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** The peer's reset is an ordinary end for a target. */
function ignore(): void {}

/** A target that does with each socket what `handle` says; half-close is left to it. */
export async function tcpTarget(handle: (socket: Socket) => void): Promise<TcpTarget> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  const target = new TcpTarget(server);
  server.on("connection", (socket) => {
    target.track(socket);
    handle(socket);
  });
  await listenOnLoopback(server);
  return target;
}

export function listenOnLoopback(server: Server, port = 0): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: "127.0.0.1", port, backlog: 4096 }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}
