import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "./caller.ts";

const EVERY_MS = 100;
/** An echo that takes longer is lost. */
const LOST_MS = 20_000;

/** Connections to an echo that say a few bytes now and then, spread over the time between two of them. */
export class EchoCrowd implements AsyncDisposable {
  readonly #connections: readonly Connection[];

  private constructor(connections: readonly Connection[]) {
    this.#connections = connections;
  }

  /** One connection after the other, each by this function. */
  static async open(count: number, connect: () => Promise<Connection>): Promise<EchoCrowd> {
    const connections: Connection[] = [];
    for (let at = 0; at < count; at++) connections.push(await connect());
    return new EchoCrowd(connections);
  }

  /** Times of the echoes of each connection in this period, ms. Rejects if one is lost. */
  async echoes(periodMs: number): Promise<number[][]> {
    const until = performance.now() + periodMs;
    const count = this.#connections.length;
    return await Promise.all(
      this.#connections.map(async (connection, at) => {
        const own: number[] = [];
        await sleep((at * EVERY_MS) / count);
        while (performance.now() < until) {
          const sentAt = performance.now();
          await connection.send("ping");
          const answer = String(await connection.readBytes(4, LOST_MS));
          if (answer !== "ping") throw new Error(`connection ${at} got ${JSON.stringify(answer)}`);
          own.push(performance.now() - sentAt);
          await sleep(EVERY_MS);
        }
        return own;
      }),
    );
  }

  /** Says a few bytes on each connection; `answered` is how many of them have been echoed so far. */
  askAll(): { readonly answered: number } {
    const asked = { answered: 0 };
    for (const connection of this.#connections) {
      connection.socket.write("ping");
      connection.readBytes(4, 2 * LOST_MS).then(
        ({ length }) => {
          if (length === 4) asked.answered++;
        },
        () => {},
      );
    }
    return asked;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { socket } of this.#connections) socket.destroy();
  }
}
