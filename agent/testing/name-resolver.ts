import type { Target } from "../../shared/address/target.ts";
import type { NameResolver } from "../context/servers.ts";

/** A resolver that answers as the test says. */
export function resolver(change: Partial<NameResolver> = {}): NameResolver {
  const missing = () => Promise.reject(new Error("ENOTFOUND"));
  return { lookup: missing, ttl: missing, srv: missing, ...change };
}

/** A lookup that finds these. */
export function addresses(...found: string[]): NameResolver["lookup"] {
  return async () => found.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
}

export const hosts = (targets: readonly Target[]): string[] => targets.map(({ host, port }) => `${host} ${port}`);
