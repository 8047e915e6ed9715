import { promises as dns, type LookupAddress, type SrvRecord } from "node:dns";
import { isIP } from "node:net";
import type { Target } from "../../shared/address/target.ts";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { dialTargetOf, type ServerLocation } from "./servers.ts";

/** What asks DNS; tests have one of their own. */
export interface NameResolver {
  /** As the operating system resolves names, with its hosts file and its search domains. */
  lookup(name: string): Promise<readonly LookupAddress[]>;
  /** How long the answer may be kept, seconds. Rejects where that is not known. */
  ttl(name: string, family: number): Promise<number>;
  srv(name: string): Promise<readonly SrvRecord[]>;
}

export const SYSTEM_RESOLVER: NameResolver = {
  lookup: (name) => dns.lookup(name, { all: true }),
  ttl: async (name, family) => {
    const records = await (family === 6 ? dns.resolve6(name, { ttl: true }) : dns.resolve4(name, { ttl: true }));
    return Math.min(...records.map(({ ttl }) => ttl));
  },
  srv: (name) => dns.resolveSrv(name),
};

/** What DNS says of a server. */
export interface FoundAddresses {
  /** At most `MAX_ADDRESSES`. One alone is no choice: the name is dialled then, unless it is one of SRV records. */
  readonly addresses: readonly Target[];
  /** Ask again after so long, ms. */
  readonly askAgainMs: number;
}

/** A name may have any number of addresses, and an agent keeps tunnels to a few. */
const MAX_ADDRESSES = 64;
/** The time to keep an answer that does not say it: one of the hosts file, or of SRV records. */
const UNKNOWN_TTL_S = 15;
export const LEAST_TTL_S = 5;
export const MOST_TTL_S = 300;

/** Whether the name of a server may have several addresses. */
export function mayHaveSeveral(location: ServerLocation): boolean {
  return location.srv !== undefined || isIP(dialTargetOf(location).host) === 0;
}

/** Asks for the addresses of a server. Rejects with the error of the resolver. */
export async function findAddresses(location: ServerLocation, resolver: NameResolver): Promise<FoundAddresses> {
  if (location.srv !== undefined) return findBySrv(location.srv, resolver);
  const { host, port } = dialTargetOf(location);
  const found = oneFamily(await resolver.lookup(host));
  const family = found[0]?.family ?? 4;
  const addresses = found.map(({ address }) => ({ host: address, port }));
  return { addresses: bounded(addresses), askAgainMs: await askAgainMs(host, family, resolver) };
}

/**
 * A server with an address of each family is one server: those of one family are counted, of the one that has more. Of
 * two with as many it is the first one's, which the operating system prefers (RFC 6724).
 */
function oneFamily(found: readonly LookupAddress[]): readonly LookupAddress[] {
  const v4 = found.filter(({ family }) => family === 4);
  const v6 = found.filter(({ family }) => family === 6);
  if (v4.length === v6.length) return found[0]?.family === 6 ? v6 : v4;
  return v4.length > v6.length ? v4 : v6;
}

/**
 * The hosts of the lowest priority number. Those of a higher one are dialled only when these have gone from DNS; RFC
 * 2782 would have them dialled when these do not answer, too. A record without a host says that there is no server.
 */
async function findBySrv(name: string, resolver: NameResolver): Promise<FoundAddresses> {
  const records = (await resolver.srv(name)).filter((record) => !/^\.?$/.test(record.name));
  if (records.length === 0) throw new Error("no record names a host");
  const first = Math.min(...records.map(({ priority }) => priority));
  const addresses = records
    .filter(({ priority }) => priority === first)
    .map((record) => ({ host: record.name, port: record.port }));
  const ttlMs = await askAgainMs(addresses[0]?.host ?? name, 4, resolver);
  return { addresses: bounded(addresses), askAgainMs: ttlMs };
}

function bounded(addresses: readonly Target[]): readonly Target[] {
  const unique = new Map(addresses.map((address) => [addressKey(address), address]));
  return [...unique.values()].slice(0, MAX_ADDRESSES);
}

async function askAgainMs(name: string, family: number, resolver: NameResolver): Promise<number> {
  const seconds = await resolver.ttl(name, family).catch(() => UNKNOWN_TTL_S);
  return Math.min(Math.max(seconds, LEAST_TTL_S), MOST_TTL_S) * 1_000;
}

/** The fault of an attempt that has no SRV records to dial. */
export function noRecords(srv: string, cause: unknown): RouteFault {
  const why = cause instanceof Error ? cause.message : "there are none";
  const sentence = `the SRV records "${srv}" do not resolve (${why}): check the name in --server, and this machine's DNS`;
  return new RouteFault("dns", sentence, { at: srv, cause });
}

/** As `remote` of a link writes it. */
export function addressKey({ host, port }: Target): string {
  return `${host}:${port}`;
}
