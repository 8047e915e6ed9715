import { BlockList, isIPv4, type SocketAddress } from "node:net";
import { networkInterfaces } from "node:os";
import { dialledAddress, isLoopback } from "./network.ts";

/** Addresses that nobody is let through to unless a rule names them. */
export interface SpecialRange {
  readonly kind: "loopback" | "link-local" | "cloud-metadata";
  readonly prefix: number;
  readonly list: BlockList;
}

export const SPECIAL_RANGES: readonly SpecialRange[] = [
  // RFC 1122 §3.2.1.3, RFC 4291 §2.5.3; the kernel dials it for the unspecified address, too (`dialledAddress`).
  special("loopback", "127.0.0.0", 8),
  special("loopback", "::1", 128),
  // RFC 3927, RFC 4291 §2.5.6.
  special("link-local", "169.254.0.0", 16),
  special("link-local", "fe80::", 10),
  // Where clouds hand out credentials of the machine, outside the link-local ranges.
  special("cloud-metadata", "fd00:ec2::", 32), // AWS
  special("cloud-metadata", "fd20:ce::254", 128), // Google Cloud
  special("cloud-metadata", "fd00:42::42", 128), // Scaleway
  special("cloud-metadata", "100.100.100.200", 32), // Alibaba
  special("cloud-metadata", "192.0.0.192", 32), // Oracle
  special("cloud-metadata", "168.63.129.16", 32), // Azure
];

function special(kind: SpecialRange["kind"], network: string, prefix: number): SpecialRange {
  const list = new BlockList();
  list.addSubnet(network, prefix, isIPv4(network) ? "ipv4" : "ipv6");
  return { kind, prefix, list };
}

/** The listening address of a process, from `server.address()`; a wildcard means each address of the machine. */
export interface ListeningAddress {
  readonly address: string;
  readonly port: number;
}

/**
 * Whether a dial reaches one of these listeners. A listener on all addresses is reached by each address of the machine.
 */
export function isOwnListener(
  listeners: readonly ListeningAddress[],
  address: SocketAddress,
  port: number,
  addresses: () => readonly string[] = machineAddresses,
): boolean {
  return listeners.some((own) => {
    if (own.port !== port) return false;
    if (own.address !== "0.0.0.0" && own.address !== "::") return equal(dialledAddress(own.address), address);
    return isLoopback(address.address) || addresses().some((mine) => equal(dialledAddress(mine), address));
  });
}

function equal(one: SocketAddress | undefined, other: SocketAddress): boolean {
  return one?.address === other.address;
}

/** The addresses of all interfaces of this machine. Throws when file descriptors run out. */
export function machineAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
}
