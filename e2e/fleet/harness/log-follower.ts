import assert from "node:assert/strict";
import type { Connection } from "../../harness/caller.ts";
import { peerEnd } from "../../harness/peer-end.ts";
import { waitFor, within } from "../../harness/wait.ts";

const SOON_MS = 30_000;

/** `kubectl logs -f`: reads numbered lines, none of which may be missing or come twice. */
export class LogFollower implements Disposable {
  readonly #connection: Connection;
  readonly #ended: Promise<string>;
  readonly #cluster: string;
  #rest = "";
  #lines = 0;
  #fault: string | undefined;

  constructor(connection: Connection, cluster: string) {
    assert.equal(connection.status, 200, connection.reason);
    this.#connection = connection;
    this.#cluster = cluster;
    this.#ended = peerEnd(connection.socket);
    connection.socket.on("data", (chunk: Buffer) => this.#onData(String(chunk))).resume();
    connection.socket.write("logs\n");
  }

  /** Resolves when `count` more lines have come. */
  async more(count: number): Promise<void> {
    const wanted = this.#lines + count;
    await waitFor(() => this.#fault !== undefined || this.#lines >= wanted, { deadlineMs: SOON_MS, what: "log lines" });
    assert.equal(this.#fault, undefined);
  }

  /** Ctrl-C at kubectl; the clean end comes back. */
  async finish(): Promise<void> {
    this.#connection.end();
    assert.equal(await within(this.#ended, SOON_MS, "the end of the log"), "fin");
    assert.equal(this.#fault, undefined);
  }

  [Symbol.dispose](): void {
    this.#connection.socket.destroy();
  }

  #onData(text: string): void {
    const [...whole] = (this.#rest + text).split("\n");
    this.#rest = whole.pop() ?? "";
    for (const line of whole) {
      const expected = `${this.#cluster} ${++this.#lines}`;
      if (line !== expected) this.#fault ??= `read "${line}" in place of "${expected}"`;
    }
  }
}
