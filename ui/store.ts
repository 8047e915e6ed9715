import type { Facts } from "../server/operators/facts.ts";
import { withChanges } from "./changes.ts";

/** Without a message for this time the connection is taken for lost, ms: there is one in each second. */
const SILENT_MS = 10_000;
const RETRY_MS = 2_000;

/**
 * The facts of the server as they are now. A page that nobody sees has no connection: a browser has six for a server,
 * and each tab of this page would take one.
 */
export class Store {
  facts: Facts = {};
  /** When the connection was lost, by `Date.now()`. */
  lostAt: number | undefined;
  #cluster = "";
  #events: EventSource | undefined;
  #lastMessageAt = Date.now();
  #clockOffset = 0;
  #onChange: () => void = () => {};

  start(onChange: () => void): void {
    this.#onChange = onChange;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
    setInterval(() => this.#watch(), RETRY_MS);
    this.#open();
  }

  /** The cluster whose agents are shown; empty: none. */
  look(cluster: string): void {
    if (cluster === this.#cluster) return;
    this.#cluster = cluster;
    this.#close();
    this.#open();
  }

  /** The server's clock, ms. */
  now(): number {
    return Date.now() + this.#clockOffset;
  }

  #open(): void {
    if (this.#events !== undefined || document.hidden) return;
    const query = this.#cluster === "" ? "" : `?cluster=${encodeURIComponent(this.#cluster)}`;
    const events = new EventSource(`events${query}`);
    this.#events = events;
    this.#lastMessageAt = Date.now();
    events.addEventListener("all", ({ data }) => this.#onMessage({}, data));
    events.addEventListener("changes", ({ data }) => this.#onMessage(this.facts, data));
    events.onerror = () => {
      this.lostAt ??= Date.now();
      this.#onChange();
    };
  }

  #onMessage(before: Facts, data: string): void {
    this.facts = withChanges(before, data);
    const { load } = this.facts;
    this.#lastMessageAt = Date.now();
    if (load !== undefined) this.#clockOffset = Date.parse(load.at) - Date.now();
    this.lostAt = undefined;
    this.#onChange();
  }

  #close(): void {
    this.#events?.close();
    this.#events = undefined;
  }

  /** A browser does not try again after an answer that is an error, and may not notice silence. */
  #watch(): void {
    const isSilent = Date.now() - this.#lastMessageAt > SILENT_MS;
    if (this.#events === undefined || (!isSilent && this.#events.readyState !== EventSource.CLOSED)) return;
    this.lostAt ??= Date.now();
    this.#close();
    this.#open();
    this.#onChange();
  }
}
