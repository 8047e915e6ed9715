import type { SocketAddress } from "node:net";
import { canonicalAddress, dialledAddress, embeddedIPv4 } from "../../shared/address/network.ts";
import { isOwnListener, type ListeningAddress, SPECIAL_RANGES } from "../../shared/address/special-addresses.ts";
import { formatTarget, parseTarget, type Target } from "../../shared/address/target.ts";

/**
 * The destinations that agents of a cluster may reach through the server, each a host and a port. Nothing else is
 * dialled, and no other name is resolved. There are no patterns: an agent belongs to the tenant, and the network here
 * to the operator.
 */
export class Destinations {
  /** As they were written. */
  readonly texts: readonly string[];
  readonly #listed: ReadonlySet<string>;

  /** Throws a sentence about the first text that is no `host:port`. */
  constructor(texts: readonly string[]) {
    this.texts = texts;
    this.#listed = new Set(texts.map((text) => canonicalDestination(parseTarget(text))));
  }

  /** Why the agent may not reach it, as a sentence; `undefined` if it is listed. */
  objection(target: Target): string | undefined {
    if (this.#listed.has(canonicalDestination(target))) return undefined;
    return `${formatTarget(target)} is not among the allowed destinations of the cluster (--allowed-destination, or allowedDestinations in its document)`;
  }
}

function canonicalDestination({ host, port }: Target): string {
  const address = dialledAddress(host);
  if (address !== undefined) return formatTarget({ host: canonicalAddress(address.address), port });
  return formatTarget({ host: host.toLowerCase().replace(/\.$/, ""), port });
}

/**
 * Why a listed destination may not be dialled at this address, as the end of a sentence. A name may resolve to anything
 * some day: only an address that is listed itself may be loopback, link-local or cloud metadata, apart from `localhost`
 * (RFC 6761 §6.3).
 */
export function addressRefusal(
  { host, port }: Target,
  resolved: string,
  listeners: readonly ListeningAddress[],
): string | undefined {
  const address = dialledAddress(resolved);
  if (address === undefined) return `"${resolved}" is not an IP address`;
  if (isOwnListener(listeners, address, port)) return "it is a port of this server itself";
  if (dialledAddress(host) !== undefined) return undefined;
  const special = SPECIAL_RANGES.find(({ list }) => addressesIn(address).some((each) => list.check(each)));
  if (special === undefined || (special.kind === "loopback" && isLocalhost(host))) return undefined;
  return `its name resolves to ${resolved}, a ${special.kind} address: list the address itself if that is meant`;
}

function addressesIn(address: SocketAddress): SocketAddress[] {
  return [address, ...embeddedIPv4(address)];
}

function isLocalhost(host: string): boolean {
  return /^localhost\.?$/i.test(host);
}
