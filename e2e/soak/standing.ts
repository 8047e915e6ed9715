import type { Connection } from "../harness/caller.ts";
import { Payload, PayloadCheck } from "../harness/payload.ts";
import { waitFor, within } from "../harness/wait.ts";
import type { Tally } from "./tally.ts";

const BEAT_MS = 100;
const BEAT_BYTES = 64;
const DEADLINE_MS = 60_000;

/**
 * An interactive connection to an echo target that is to live as long as the run, and to see each byte once and in
 * order.
 */
export class Standing {
  readonly name: string;
  readonly #connection: Connection;
  readonly #tally: Tally;
  readonly #payload: Payload;
  readonly #check: PayloadCheck;
  #timer: NodeJS.Timeout | undefined;
  #sent = 0;
  #ending = false;
  #lost: string | undefined;

  constructor(name: string, connection: Connection, seed: number, tally: Tally) {
    this.name = name;
    this.#connection = connection;
    this.#tally = tally;
    this.#payload = new Payload(seed);
    this.#check = new PayloadCheck(seed);
    connection.socket
      .on("data", (chunk: Buffer) => this.#onData(chunk))
      .on("error", (error) => this.#onLost(error.message))
      .on("end", () => this.#onLost("the other end closed it"))
      .on("close", () => this.#onLost("closed"))
      .resume();
  }

  talk(): void {
    this.#timer ??= setInterval(() => this.#beat(), BEAT_MS);
  }

  /** Sends no more for now; resolves when all echoes have come. A loss is a fault of the tally. */
  async hush(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    const all = () => this.#lost !== undefined || this.#check.bytes >= this.#sent;
    await waitFor(all, { deadlineMs: DEADLINE_MS, what: "the last echoes" }).catch((error: Error) =>
      this.#onLost(error.message),
    );
    if (this.#lost === undefined && this.#check.bytes !== this.#sent) {
      this.#onLost(`${this.#check.bytes} bytes came back`);
    }
  }

  /** Sends a last message and ends cleanly. */
  async finish(): Promise<void> {
    this.#beat();
    await this.hush();
    if (this.#lost !== undefined) return;
    this.#ending = true;
    const { socket } = this.#connection;
    const ended = new Promise((resolve) => socket.once("end", resolve));
    socket.end();
    await within(ended, DEADLINE_MS, "its end").then(
      () => this.#tally.endedWell("interactive"),
      (error: Error) => this.#fault(error.message),
    );
  }

  #beat(): void {
    const beat = this.#payload.at(this.#sent, BEAT_BYTES);
    this.#sent += beat.length;
    this.#connection.socket.write(beat);
  }

  #onData(chunk: Buffer): void {
    this.#check.take(chunk);
    if (this.#check.wrongAt === undefined) this.#tally.bytes += chunk.length;
    else this.#onLost(`other bytes than were sent, from ${this.#check.wrongAt} on`);
  }

  #onLost(how: string): void {
    if (this.#ending || this.#lost !== undefined) return;
    this.#lost = how;
    clearInterval(this.#timer);
    this.#fault(how);
  }

  #fault(how: string): void {
    this.#tally.fault(`${this.name}, after ${this.#sent} bytes sent and ${this.#check.bytes} received: ${how}`);
  }

  destroy(): void {
    this.#ending = true;
    clearInterval(this.#timer);
    this.#connection.socket.destroy();
  }
}
