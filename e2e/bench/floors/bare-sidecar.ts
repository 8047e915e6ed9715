import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { connect as openSession } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { serve } from "../child.ts";

interface Files {
  readonly caCert: string;
  readonly cert: string;
  readonly key: string;
}

/** The smallest sidecar that Node allows: each CONNECT becomes a stream of one HTTP/2 session to the server. */
async function start({ server, files }: { server: number; files: Files }): Promise<{ port: number }> {
  const [ca, cert, key] = [files.caCert, files.cert, files.key].map((file) => readFileSync(file));
  const session = openSession(`https://127.0.0.1:${server}`, { ca, cert, key } as object);
  const listener = createServer();
  listener.on("connect", (request, duplex, head: Buffer) => {
    const client = duplex as Socket;
    client.setNoDelay();
    const stream = session.request({ ":method": "CONNECT", ":authority": request.url ?? "" });
    stream.on("response", () => {
      client.write("HTTP/1.1 200 Connection Established\r\n\r\n");
      if (head.length > 0) stream.write(head);
      stream.pipe(client).pipe(stream);
    });
    stream.on("error", () => client.destroy());
    client.on("error", () => stream.destroy()).on("close", () => stream.destroy());
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return { port: (listener.address() as AddressInfo).port };
}

const methods = { start };
export type BareSidecarMethods = typeof methods;
serve(methods);
