import { createSecureContext } from "node:tls";
import { HeldClient } from "../../../shared/listen/testing/held-client.ts";
import { dearChain } from "../../../shared/pki/testing/dear-certificates.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly localAddress: string;
  /** Connections that are held open at once. */
  readonly connections: number;
}

/** What is ready after so long goes out together. */
const TOGETHER_MS = 250;

/**
 * One address whose clients show certificates that nobody accepts and that take long to verify: they begin their
 * handshakes, and send the rest at the same time. Others come in their place.
 */
await flooding<Args, { answered: number }>({ answered: 0 }, async (args, counts) => {
  const { port, servername, localAddress, connections } = args;
  const secureContext = createSecureContext(await dearChain(2));
  const begin = () =>
    new HeldClient({ port, host: "127.0.0.1", localAddress }, { secureContext, servername }, () => counts.answered++);
  let clients: HeldClient[] = [];
  setInterval(() => {
    for (const client of clients) if (client.isReady) client.goOn();
    const open = clients.filter(({ isClosed }) => !isClosed);
    clients = [...open, ...Array.from({ length: connections - open.length }, begin)];
  }, TOGETHER_MS);
});
