import { readFileSync } from "node:fs";
import { createServer } from "node:https";

/** Node.js opens its inspector at this signal. */
process.on("SIGUSR1", () => {});
/** It ends with the demo, even if that was killed. */
process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
process.channel?.unref();

/** The sample target of `culvert demo`, run as a process: `target PORT CERT KEY`. It prints a line when it listens. */
const [port = "0", cert = "", key = ""] = process.argv.slice(2);

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
