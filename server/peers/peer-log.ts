import type { LineBudget, ThrottledLog } from "../../shared/runtime/throttled-log.ts";

/** Lines of one peer in a minute: it may be lost and come back some times. */
const LINES = 20;
/** Lines of all peers in a minute: the directory, which is not trusted, may name any number of servers. */
const LINES_OF_ALL = 1_000;
const ALL: LineBudget = { key: "peers", lines: LINES_OF_ALL, subject: "lines of other servers", fields: {} };

/** The log of links between servers. A peer can open and end links all the time. */
export class PeerLog {
  readonly #throttled: Pick<ThrottledLog, "write">;

  constructor(throttled: Pick<ThrottledLog, "write">) {
    this.#throttled = throttled;
  }

  /** `peer`: the id of the other server. */
  write(level: "info" | "warn", peer: string, fields: Readonly<Record<string, unknown>>, message: string): void {
    const own = { key: `peers\n${peer}`, lines: LINES, subject: "lines of one server", fields: { peer } };
    this.#throttled.write(level, { peer, ...fields }, message, { budgets: [own, ALL] });
  }
}
