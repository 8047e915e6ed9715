import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { serve } from "../child.ts";
import { listen } from "./sockets.ts";

// A server of the same server-sent events as the status page's, and nothing else: what its readers cost the machine.

/** A usual message of the page while a thousand clusters are quiet. */
const MESSAGE = Buffer.from(`event: changes\ndata: {"load":"${"x".repeat(230)}"}\n\n`);
const INTERVAL_MS = 1_000;

async function start(_: object): Promise<{ port: number }> {
  const server = createServer((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(MESSAGE);
    const timer = setInterval(() => response.write(MESSAGE), INTERVAL_MS);
    response.on("error", () => {}).on("close", () => clearInterval(timer));
  });
  await listen(server, { host: "127.0.0.1", port: 0 });
  return { port: (server.address() as AddressInfo).port };
}

const methods = { start };

export type BareEventsMethods = typeof methods;
serve(methods);
