import { createServer, type IncomingMessage } from "node:http";
import { Duplex } from "node:stream";
import { feedParser } from "../../../shared/node/http.ts";
import type { ConnectHeader } from "../usual-connect.ts";

/** The smallest that `--header-limit` may be. */
const HEADER_LIMIT = 1_024;

/** The CONNECT that Node's own parser finds; `undefined`: it refuses the bytes, waits for more, or finds no CONNECT. */
export function connectByNode(bytes: Buffer): ConnectHeader | undefined {
  const server = createServer({ requireHostHeader: false, maxHeaderSize: HEADER_LIMIT });
  const stream = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  let found: IncomingMessage | undefined;
  server.on("connect", (request: IncomingMessage) => {
    found = request;
  });
  server.emit("connection", stream);
  feedParser(stream, bytes);
  stream.destroy();
  if (found === undefined) return undefined;
  const { url, headers, rawHeaders, httpVersionMajor } = found;
  return { url, headers: { ...headers }, rawHeaders, httpVersionMajor };
}
