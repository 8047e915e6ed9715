import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { withoutMapping } from "../../shared/address/network.ts";

const EVERY_INTERFACE = ["::", "0.0.0.0"];

/**
 * Whether an agent has dialled the callers' port of this server: a CONNECT to it would come back here, and could be
 * nested without end. `dialled`: the address that the agent reports. `remote`: where the agent's connection comes from.
 * A loopback address is one of this machine only if the agent runs here, too.
 */
export function isOwnPort(dialled: string, remote: string, callers: AddressInfo): boolean {
  if (!dialled.endsWith(`:${callers.port}`)) return false;
  const host = hostOf(dialled);
  const own = ownAddresses();
  const isLoopback = host === "::1" || host.startsWith("127.");
  if (isLoopback ? !own.has(hostOf(remote)) : !own.has(host)) return false;
  return EVERY_INTERFACE.includes(callers.address) || withoutMapping(callers.address) === host;
}

/** The host of `address:port`, without brackets. */
function hostOf(address: string): string {
  return withoutMapping(address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, ""));
}

function ownAddresses(): Set<string> {
  return new Set(Object.values(networkInterfaces()).flatMap((each) => each?.map(({ address }) => address) ?? []));
}
