import { createServer } from "node:net";
import { type ListenAddress, listenError } from "../shared/config/listen-address.ts";

/**
 * Rejects, with a sentence, if the port cannot be opened. The listener itself comes later (it would hold up the first
 * tunnel), and must not be what finds out: by then a server has this agent already.
 */
export function checkPort(at: ListenAddress): Promise<void> {
  const { port, host } = at;
  return new Promise((resolve, reject) => {
    const probe = createServer((socket) => socket.destroy());
    probe.once("error", (error) => reject(listenError(error, at)));
    probe.listen({ port, ...(host === "" ? {} : { host }) }, () => probe.close(() => resolve()));
  });
}
