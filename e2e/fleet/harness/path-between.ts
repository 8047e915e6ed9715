import type { Socket } from "node:net";
import { type Behind, type FaultRelay, startRelay } from "../../harness/faults.ts";
import { hasConnection } from "../../harness/proc.ts";
import type { ServerSlot } from "./server-slot.ts";

/** One direction of dialling: to the peers' port of one of the two servers. */
interface Way {
  /** The relay that all other servers dial. */
  readonly front: FaultRelay;
  /** The relay between it and the other one of the two. */
  readonly path: FaultRelay;
}

/**
 * The path between two servers, apart from the ways of all other servers to them. A server tells everybody one address
 * and the path is known by who has dialled it, so the relays ask the kernel which process that is.
 */
export class PathBetween implements AsyncDisposable {
  readonly #ways: readonly [Way, Way];
  #servers: readonly [ServerSlot, ServerSlot] | undefined;

  private constructor(ways: readonly [Way, Way]) {
    this.#ways = ways;
  }

  /** @param peerPorts where the two servers will listen for peers */
  static async start(peerPorts: readonly [number, number]): Promise<PathBetween> {
    const [toFirst, toSecond] = peerPorts.map((port) => ({ host: "127.0.0.1", port })) as [Behind, Behind];
    const way = async (behind: Behind): Promise<Way> => ({
      front: await startRelay(behind),
      path: await startRelay(behind),
    });
    const between = new PathBetween([await way(toFirst), await way(toSecond)]);
    between.#ways[0].front.leadTo((dialler) => (between.#isFrom(1, dialler) ? between.#ways[0].path : toFirst));
    between.#ways[1].front.leadTo((dialler) => (between.#isFrom(0, dialler) ? between.#ways[1].path : toSecond));
    return between;
  }

  /** The way of all other servers to the first and to the second one. */
  get fronts(): readonly [FaultRelay, FaultRelay] {
    return [this.#ways[0].front, this.#ways[1].front];
  }

  /** These are the two. */
  join(first: ServerSlot, second: ServerSlot): void {
    this.#servers = [first, second];
  }

  /** Whatever one of them sends to the other is lost, and nobody is told. */
  drop(): void {
    for (const { path } of this.#ways) path.drop();
  }

  restore(): void {
    for (const { path } of this.#ways) path.restore();
  }

  /** Connections that one of them has dialled to the other and that are open. */
  get open(): readonly [number, number] {
    return [this.#ways[0].path.open, this.#ways[1].path.open];
  }

  #isFrom(index: 0 | 1, { remotePort = 0, localPort = 0 }: Socket): boolean {
    const server = this.#servers?.[index];
    return server?.running === true && hasConnection(server.process.pid, remotePort, localPort);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { front, path } of this.#ways) {
      await front[Symbol.asyncDispose]();
      await path[Symbol.asyncDispose]();
    }
  }
}
