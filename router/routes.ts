import type { Target } from "../shared/address/target.ts";

/** Names, and the backends that serve them. */
export interface Route {
  /** The first of its names: what logs and metrics call it. */
  readonly name: string;
  /** Its number in a file of several documents. */
  readonly document?: number;
  /** Canonical; `*.x` stands for every name that ends with `.x`. */
  readonly sni: readonly string[];
  readonly to: readonly Target[];
  readonly sendProxy: "v2" | "off";
}

/** Name → route; there is no default. Names overlap within one route only (settle-routes.ts), so that their order means nothing. */
export class RouteTable {
  readonly routes: readonly Route[];
  readonly #exact = new Map<string, Route>();
  /** By what follows the star. */
  readonly #wildcards = new Map<string, Route>();

  /** No name is there twice, and no name of one route is under a wildcard of another. */
  constructor(routes: readonly Route[]) {
    this.routes = routes;
    for (const route of routes) {
      for (const name of route.sni) {
        if (name.startsWith("*")) this.#wildcards.set(name.slice(1), route);
        else this.#exact.set(name, route);
      }
    }
  }

  /** The name as `canonicalServerName` has it. */
  find(serverName: string): Route | undefined {
    const exact = this.#exact.get(serverName);
    if (exact !== undefined) return exact;
    for (let dot = serverName.indexOf("."); dot >= 0; dot = serverName.indexOf(".", dot + 1)) {
      const route = this.#wildcards.get(serverName.slice(dot));
      if (route !== undefined) return route;
    }
    return undefined;
  }
}
