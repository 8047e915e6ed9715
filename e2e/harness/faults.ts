import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type Faults, OneWay } from "./one-way.ts";
import { listenOnLoopback } from "./targets/tcp.ts";

export type Direction = "forward" | "backward";
export type Directions = Direction | "both";

/** The relay's way to cut: an orderly end or a reset. */
export type Cut = "fin" | "rst";

const FIN_GRACE_MS = 1000;

/**
 * A TCP relay that misbehaves on demand. `forward` is from whoever dials the relay (the agent) to what stands behind
 * it (the server), `backward` the other way. Faults may be changed at any time and hold for connections to come too.
 */
export class FaultRelay implements AsyncDisposable {
  readonly host = "127.0.0.1";
  readonly #behind: { readonly host: string; readonly port: number };
  readonly #faults: Record<Direction, Faults> = { forward: noFaults(), backward: noFaults() };
  readonly #pairs = new Set<Pair>();
  #server: Server | undefined;
  #port = 0;
  /** Connections accepted since the start. */
  accepted = 0;
  /** Bytes delivered since the start. */
  readonly bytes: Record<Direction, number> = { forward: 0, backward: 0 };

  constructor(behind: { readonly host: string; readonly port: number }) {
    this.#behind = behind;
  }

  get port(): number {
    return this.#port;
  }

  /** Connections open now. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Holds every byte (and FIN) for `ms` each way; order is kept and throughput is not limited. */
  delay(ms: number, directions: Directions = "both"): void {
    this.#change(directions, (faults) => {
      faults.delayMs = ms;
    });
  }

  /** Delivers at most this many bytes per second per connection; `Infinity` ends it. */
  throttle(bytesPerSecond: number, directions: Directions = "both"): void {
    this.#change(directions, (faults) => {
      faults.bytesPerSecond = bytesPerSecond;
    });
  }

  /** Cuts what passes into random pieces of 1 to `maxBytes`, one write each; 0 ends it. */
  split(maxBytes: number, directions: Directions = "both"): void {
    this.#change(directions, (faults) => {
      faults.maxPiece = maxBytes;
    });
  }

  /**
   * From now on nothing arrives, neither bytes nor FIN nor RST, and nobody is told: a path that died.
   * What was sent waits, as in the retransmission queue of a real sender, until `restore()`.
   */
  drop(directions: Directions = "both"): void {
    this.#change(directions, (faults) => {
      faults.dropping = true;
    });
  }

  restore(directions: Directions = "both"): void {
    this.#change(directions, (faults) => {
      faults.dropping = false;
    });
  }

  /** Ends all connections, visibly, at both sides; new ones are still relayed. */
  cut(how: Cut): void {
    for (const pair of this.#pairs) pair.cut(how);
  }

  /** Cuts, and refuses new connections until `plug()`. */
  async unplug(how: Cut = "rst"): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    const closed = new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
    this.cut(how);
    await closed;
  }

  /** Listens (again), on the same port. */
  async plug(): Promise<void> {
    if (this.#server) return;
    const server = createServer({ allowHalfOpen: true, noDelay: true });
    server.on("connection", (socket) => this.#relay(socket));
    await listenOnLoopback(server, this.#port);
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.unplug("rst");
  }

  #relay(dialler: Socket): void {
    this.accepted++;
    const server = connect({ host: this.#behind.host, port: this.#behind.port, allowHalfOpen: true, noDelay: true });
    const pair = new Pair(dialler, server, this.#faults, this.bytes);
    this.#pairs.add(pair);
    pair.onClosed = () => this.#pairs.delete(pair);
  }

  #change(directions: Directions, apply: (faults: Faults) => void): void {
    for (const direction of ["forward", "backward"] as const) {
      if (directions === "both" || directions === direction) apply(this.#faults[direction]);
    }
    for (const pair of this.#pairs) pair.faultsChanged();
  }
}

/** Starts a relay in front of `behind`. */
export async function startRelay(behind: { readonly host: string; readonly port: number }): Promise<FaultRelay> {
  const relay = new FaultRelay(behind);
  await relay.plug();
  return relay;
}

/** One relayed connection: two sockets, one `OneWay` in each direction. */
class Pair {
  readonly #sockets: readonly [Socket, Socket];
  readonly #ways: readonly [OneWay, OneWay];
  #open = 2;
  #cut = false;
  onClosed: (() => void) | undefined;

  constructor(dialler: Socket, server: Socket, faults: Record<Direction, Faults>, bytes: Record<Direction, number>) {
    this.#sockets = [dialler, server];
    const count = (direction: Direction) => (length: number) => {
      bytes[direction] += length;
    };
    this.#ways = [
      new OneWay(dialler, server, faults.forward, count("forward")),
      new OneWay(server, dialler, faults.backward, count("backward")),
    ];
    for (const socket of this.#sockets) socket.on("close", () => this.#onSocketClose());
  }

  faultsChanged(): void {
    for (const way of this.#ways) way.faultsChanged();
  }

  cut(how: Cut): void {
    if (this.#cut) return;
    this.#cut = true;
    for (const way of this.#ways) way.stop();
    for (const socket of this.#sockets) {
      if (how === "rst") {
        socket.resetAndDestroy();
      } else {
        socket.end();
        socket.resume(); // unread bytes at the close would turn the FIN into a reset
        const timer = setTimeout(() => socket.destroy(), FIN_GRACE_MS);
        socket.on("end", () => socket.destroy());
        socket.on("close", () => clearTimeout(timer));
      }
    }
  }

  #onSocketClose(): void {
    this.#open--;
    if (this.#open === 0) this.onClosed?.();
  }
}

function noFaults(): Faults {
  return { delayMs: 0, bytesPerSecond: Number.POSITIVE_INFINITY, maxPiece: 0, dropping: false };
}
