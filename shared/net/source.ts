import type { Socket } from "node:net";
import type { Endpoint } from "./proxy-protocol.ts";

const told = new WeakMap<Socket, Endpoint>();

/** A balancer has said who is behind this connection (PROXY protocol). */
export function tellSource(socket: Socket, source: Endpoint): void {
  told.set(socket, source);
}

/** Who is at the other end, as far as is known: a balancer's word before the kernel's. */
export function sourceOf(socket: Socket): Endpoint {
  return told.get(socket) ?? { address: socket.remoteAddress ?? "nowhere", port: socket.remotePort ?? 0 };
}

/** The same for logs. */
export function remoteOf(socket: Socket): string {
  const { address, port } = sourceOf(socket);
  return `${address}:${port}`;
}
