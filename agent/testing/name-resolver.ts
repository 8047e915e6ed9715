import type { Target } from "../../shared/address/target.ts";
import type { NameResolver } from "../context/servers.ts";

/** A resolver that answers as the test says. */
export function resolver(change: Partial<NameResolver> = {}): NameResolver {
  const missing = () => Promise.reject(new Error("ENOTFOUND"));
  return { find: missing, ttl: missing, srv: missing, ...change };
}

/** Finds these addresses. */
export function addresses(...found: string[]): NameResolver["find"] {
  return async () => found.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
}

export const hosts = (targets: readonly Target[]): string[] => targets.map(({ host, port }) => `${host} ${port}`);
