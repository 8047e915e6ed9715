import type { TLSSocket } from "node:tls";
import type { Logger } from "../../shared/process/logger.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import { leftWords } from "./handshake-words.ts";

/** A client that has done its TLS handshake and left without a byte. */
export interface Left {
  readonly listener: "callers" | "agents";
  readonly cluster: string;
  readonly remote: string;
  readonly socket: TLSSocket;
}

/**
 * Who brought a certificate of ours has something to say to us, and does not like what it saw; who brought none is most
 * often a balancer's probe, every few seconds.
 */
export function tellLeft(
  { socket, ...whose }: Left,
  { log, strangers }: { readonly log: Logger; readonly strangers: StrangerLog },
): void {
  const line = { ...whose, reason: leftWords(socket) };
  const message = "connection ended after its TLS handshake, without a request";
  if (socket.authorized) strangers.tell("info", line, message);
  else log.debug(line, message);
}
