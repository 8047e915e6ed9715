import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import { createServer as createTlsServer, type Server as TlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { testCertificates } from "./scripted-proxy.ts";

/** A script that gives this answer for every target. */
export function pacScript(answer: string): string {
  return `function FindProxyForURL() { return "${answer}"; }`;
}

/** The URL of a script on a server without TLS. */
export async function serve(t: TestContext, listener: RequestListener): Promise<string> {
  return `http://127.0.0.1:${await listen(t, createServer(listener))}/proxy.pac`;
}

/** The URL of a script on a server with TLS, and the CA of its certificate. */
export async function serveTls(t: TestContext, listener: RequestListener) {
  const { ca, server } = await testCertificates();
  const port = await listen(t, createTlsServer(server, listener));
  return { url: `https://127.0.0.1:${port}/proxy.pac`, ca: () => [ca] };
}

async function listen(t: TestContext, server: Server | TlsServer): Promise<number> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}
