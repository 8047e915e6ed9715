import { createServer } from "node:http";
import { connect, type Socket } from "node:net";
import { serve } from "../child.ts";
import { listen } from "./sockets.ts";

/** The plain CONNECT proxy that Node makes easy, without a tunnel, in one process: the least cost of a CONNECT. */
async function start({ path }: { path: string }): Promise<object> {
  const server = createServer();
  server.on("connect", (request, duplex, head: Buffer) => {
    const caller = duplex as Socket;
    const [host = "", port = ""] = (request.url ?? "").split(":");
    const target = connect({ host, port: Number(port), noDelay: true }, () => {
      caller.write("HTTP/1.1 200 Connection Established\r\n\r\n");
      if (head.length > 0) target.write(head);
      target.pipe(caller).pipe(target);
    });
    target.on("error", () => caller.destroy());
    caller.on("error", () => target.destroy()).on("close", () => target.destroy());
  });
  await listen(server, { path });
  return {};
}

const methods = { start };
export type ConnectProxyMethods = typeof methods;
serve(methods);
