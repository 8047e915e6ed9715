import type { Logger } from "../../shared/runtime/logger.ts";
import type { ServerOptions } from "../options/options.ts";
/**
 * How many servers there are, as far as this one knows. It is a hint for agents, which look for this number of servers:
 * it decides nothing here. Whatever counts them calls `set`.
 */
export class ServerCount {
  #value: number | undefined;
  readonly #listeners = new Set<(count: number) => void>();

  /** `value`: `undefined` while this server does not know. */
  constructor(value?: number) {
    this.#value = value;
  }

  get value(): number | undefined {
    return this.#value;
  }

  /** A number that was known stays until another one is. Returns false if it is the same. */
  set(value: number): boolean {
    if (value === this.#value) return false;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener(value);
    return true;
  }

  /** Calls the listener for each change. Returns the function that ends this. */
  onChange(listener: (count: number) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/**
 * Counts the servers in Kubernetes if the options want that; `undefined`: nothing counts, and no client of Kubernetes
 * is loaded. Rejects with a `ConfigError`.
 */
export async function countServers(options: ServerOptions, servers: ServerCount, log: Logger) {
  if (options.serverCountService === "" && !options.enableLeaseController) return undefined;
  const { startReplicaCount } = await import("./replica-count.ts");
  return startReplicaCount(options, (count) => servers.set(count), log);
}
