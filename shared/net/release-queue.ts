import type { Duplex } from "node:stream";

/** Each costs about 0.3 ms, until the last listener has heard of its end. */
const PER_TURN = 8;

/**
 * Lets sockets go a few in a turn of the loop (docs/decisions/0008). A path that is cut takes thousands of TLS connections
 * with it, and what Node does for the end of each would be done for all of them in one turn.
 */
export class ReleaseQueue {
  /** In the order in which they were destroyed. */
  readonly #waiting = new Set<() => void>();
  #room = PER_TURN;
  #turn: NodeJS.Immediate | undefined;

  /**
   * From now on this socket waits for its turn when it is destroyed. Until then it is `destroyed` and has not closed, as
   * is any stream whose `_destroy` takes its time.
   */
  watch(socket: Duplex): void {
    const release = socket._destroy;
    socket._destroy = (error, done) => {
      this.#waiting.add(() => release.call(socket, error, done));
      this.#releaseSome();
    };
  }

  #releaseSome(): void {
    for (const release of this.#waiting) {
      if (this.#room === 0) break;
      this.#room--;
      this.#waiting.delete(release);
      release();
    }
    if (this.#room < PER_TURN) this.#turn ??= setImmediate(this.#onTurn);
  }

  readonly #onTurn = (): void => {
    this.#turn = undefined;
    this.#room = PER_TURN;
    this.#releaseSome();
  };
}
