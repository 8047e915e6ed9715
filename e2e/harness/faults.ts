import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { Faults } from "./one-way.ts";
import { type Cut, type CutPoint, type Direction, RelayedPair } from "./relayed-pair.ts";
import { listenOnLoopback } from "./targets/tcp.ts";

export type Directions = Direction | "both";

/** The listener behind a relay. */
export interface Behind {
  readonly host: string;
  readonly port: number;
}

/**
 * A TCP relay that misbehaves on demand. `forward` is from whoever dials the relay (the agent) to what stands behind
 * it (the server), `backward` the other way. Faults may be changed at any time and hold for connections to come too.
 */
export class FaultRelay implements AsyncDisposable {
  readonly host = "127.0.0.1";
  #behindFor: (dialler: Socket) => Behind;
  readonly #faults: Record<Direction, Faults> = { forward: noFaults(), backward: noFaults() };
  readonly #pairs = new Set<RelayedPair>();
  /** Connections to come that are to be cut, by their number among all accepted. */
  readonly #planned = new Map<number, CutPoint>();
  #server: Server | undefined;
  #port = 0;
  /** Connections accepted since the start. */
  accepted = 0;
  /** Connections cut since the start, in whatever way. */
  cuts = 0;
  /** Bytes delivered since the start. */
  readonly bytes: Record<Direction, number> = { forward: 0, backward: 0 };

  constructor(behind: Behind) {
    this.#behindFor = () => behind;
  }

  get port(): number {
    return this.#port;
  }

  /** Connections open now. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Connections to come go to another server, as a balancer decides: all of them, or each by its dialler. */
  leadTo(behind: Behind | ((dialler: Socket) => Behind)): void {
    this.#behindFor = typeof behind === "function" ? behind : () => behind;
  }

  /** Holds every byte (and FIN) for `ms` each way; order is kept and throughput is not limited. */
  delay(ms: number, directions: Directions = "both"): void {
    this.#change(directions, (faults) => {
      faults.delayMs = ms;
    });
  }

  /**
   * From now on nothing arrives, neither bytes nor FIN nor RST, and nobody is told: a path that died. Bytes that were
   * sent wait, as in the retransmission queue of a real sender, until `restore()`.
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

  /** Ends all connections at both sides, or silences them for good; new ones are still relayed. */
  cut(how: Cut): void {
    for (const pair of this.#pairs) pair.cut(how);
  }

  /** Cuts each connection at a byte, counted from now: in the middle of a TLS record, or of a frame. */
  cutAt(point: CutPoint): void {
    for (const pair of this.#pairs) pair.cutAt(point);
  }

  /** The same for the `k`-th connection from now (1 is the next), counted from its first byte. */
  cutLater(k: number, point: CutPoint): void {
    this.#planned.set(this.accepted + k, point);
  }

  /** Cuts, and refuses new connections until `plug()`. */
  async unplug(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    const closed = new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
    this.cut("rst");
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
    await this.unplug();
  }

  #relay(dialler: Socket): void {
    this.accepted++;
    const { host, port } = this.#behindFor(dialler);
    const server = connect({ host, port, allowHalfOpen: true, noDelay: true });
    const pair = new RelayedPair(dialler, server, this.#faults, this.bytes);
    this.#pairs.add(pair);
    pair.onCut = () => this.cuts++;
    pair.onClosed = () => this.#pairs.delete(pair);
    const point = this.#planned.get(this.accepted);
    this.#planned.delete(this.accepted);
    if (point) pair.cutAt(point);
  }

  #change(directions: Directions, apply: (faults: Faults) => void): void {
    for (const direction of ["forward", "backward"] as const) {
      if (directions === "both" || directions === direction) apply(this.#faults[direction]);
    }
    for (const pair of this.#pairs) pair.faultsChanged();
  }
}

/** Starts a relay in front of `behind`. */
export async function startRelay(behind: Behind): Promise<FaultRelay> {
  const relay = new FaultRelay(behind);
  await relay.plug();
  return relay;
}

function noFaults(): Faults {
  return { delayMs: 0, dropping: false };
}
