import { readFileSync } from "node:fs";
import { createServer } from "node:https";

/** The sample target of `culvert demo`, in a process of its own. It prints a line when it listens. */
export function runSampleTarget(port: string, cert: string, key: string): void {
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) => {
    const { remoteAddress, remotePort } = request.socket;
    const text = [
      "Hello from the other side of the culvert.",
      `You asked for ${request.method} ${JSON.stringify(request.url)}; I was dialled by the agent, from ${remoteAddress}:${remotePort}.`,
      "",
    ].join("\n");
    response.writeHead(200, { "content-type": "text/plain", "content-length": Buffer.byteLength(text) }).end(text);
  });
  server.on("tlsClientError", () => {});
  server.listen(Number(port), "127.0.0.1", () => process.stdout.write("listening\n"));

  const stop = (): void => {
    server.close();
    server.closeAllConnections();
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
}
