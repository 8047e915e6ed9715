import type { Socket } from "node:net";
import { rawSocketOf } from "../relay/reset.ts";
import type { Endpoint } from "./proxy-protocol.ts";

const told = new WeakMap<Socket, Endpoint>();
/** What the kernel puts in front of an IPv4 address on a socket that takes both (RFC 4291 §2.5.5.2). */
const V4_ON_V6 = /^::ffff:(?=\d+\.)/;

/** A balancer has said who is behind this connection (PROXY protocol). */
export function tellSource(socket: Socket, source: Endpoint): void {
  told.set(socket, source);
}

/**
 * Who is at the other end, as far as is known: a balancer's word before the kernel's. IPv4 is written as IPv4. Node asks the
 * kernel once, which soon knows no more of a connection that is cut: so ask first when it is accepted.
 */
export function sourceOf(socket: Socket): Endpoint {
  const { remoteAddress = "nowhere", remotePort = 0 } = rawSocketOf(socket) ?? socket;
  return told.get(socket) ?? { address: remoteAddress.replace(V4_ON_V6, ""), port: remotePort };
}

/** The same for logs. */
export function remoteOf(socket: Socket): string {
  return formatEndpoint(sourceOf(socket));
}

/** An end of a connection, as logs have it. */
export function formatEndpoint({ address, port }: Endpoint): string {
  return `${address}:${port}`;
}
