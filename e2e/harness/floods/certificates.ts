import { createSecureContext } from "node:tls";
import { HeldClient } from "../../../shared/listen/testing/held-client.ts";
import { slowChain } from "../../../shared/pki/testing/slow-certificates.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly localAddress: string;
  /** Connections that are held open at once. */
  readonly connections: number;
}

/** Interval between batches, ms: all clients that are ready by then send at the same time. */
const TOGETHER_MS = 250;

/**
 * A flood from one address: its clients show certificates that no CA accepts and that are slow to verify. The clients
 * begin their handshakes, and send the rest at the same time. New clients replace those that are closed.
 */
await flooding<Args, { answered: number }>({ answered: 0 }, async (args, counts) => {
  const { port, servername, localAddress, connections } = args;
  const secureContext = createSecureContext(await slowChain(2));
  const begin = () =>
    new HeldClient({ port, host: "127.0.0.1", localAddress }, { secureContext, servername }, () => counts.answered++);
  let clients: HeldClient[] = [];
  setInterval(() => {
    for (const client of clients) if (client.isReady) client.goOn();
    const open = clients.filter(({ isClosed }) => !isClosed);
    clients = [...open, ...Array.from({ length: connections - open.length }, begin)];
  }, TOGETHER_MS);
});
