import type { TLSSocket } from "node:tls";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { leftWords } from "./handshake-failures.ts";

/** A client that has done its TLS handshake and left before its request was whole. */
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
  { log, throttledLog }: { readonly log: Logger; readonly throttledLog: ThrottledLog },
): void {
  const isSilent = socket.bytesRead === 0;
  const line = { ...whose, reason: isSilent ? leftWords(socket) : "it was the beginning of one, and no more" };
  const message = `connection ended after its TLS handshake, without ${isSilent ? "a request" : "a whole request"}`;
  if (socket.authorized) throttledLog.write("info", line, message);
  else log.debug(line, message);
}
