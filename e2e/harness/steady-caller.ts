import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "./caller.ts";

const EVERY_MS = 10;

/**
 * A caller that echoes a few bytes again and again while others misbehave, and reports whether it was disturbed: bytes
 * that are lost, changed, or not there when `readBytes` gives up. How long an echo takes is for `assertUnharmed` of
 * bystander.ts, which has an idle server to compare it with.
 */
export class SteadyCaller implements AsyncDisposable {
  readonly #connection: Connection;
  readonly #ended: Promise<void>;
  #stopped = false;
  #failure: Error | undefined;
  #rounds = 0;

  constructor(connection: Connection) {
    this.#connection = connection;
    if (connection.status !== 200) this.#failure = new Error(`the steady caller was refused: ${connection.reason}`);
    this.#ended = this.#run();
  }

  /** Ends the watch; throws when the stream did not go on as if nothing had been. */
  async assertUnharmed(): Promise<void> {
    await this.#stop();
    if (this.#failure)
      throw new Error(`the steady caller was disturbed: ${this.#failure.message}`, { cause: this.#failure });
    if (this.#rounds === 0) throw new Error("the steady caller saw nothing at all");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stop();
    await this.#connection[Symbol.asyncDispose]();
  }

  async #stop(): Promise<void> {
    this.#stopped = true;
    await this.#ended;
  }

  async #run(): Promise<void> {
    try {
      while (!this.#stopped && this.#failure === undefined) {
        const text = `round ${this.#rounds}`;
        await this.#connection.send(text);
        const echoed = (await this.#connection.readBytes(text.length)).toString();
        if (echoed !== text) throw new Error(`sent ${JSON.stringify(text)}, got ${JSON.stringify(echoed)}`);
        this.#rounds++;
        await sleep(EVERY_MS);
      }
    } catch (error) {
      this.#failure = error as Error;
    }
  }
}
