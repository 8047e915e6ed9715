import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { type ListenAddress, listenError } from "../config/listen-address.ts";
import { AdminConnections, maxConnections, readRequest } from "./connections.ts";
import { type PageOptions, pagesOf } from "./pages.ts";

/** Port 0 is any free port. Callers that use 0 for "off" do not start a listener. */
export interface AdminOptions extends ListenAddress, PageOptions {}

export interface Admin {
  readonly address: AddressInfo;
  /** Stops listening and ends all connections at once. */
  close(): Promise<void>;
}

/**
 * Starts the health or the admin listener. It serves one request of each connection and a bounded number of
 * connections.
 */
export async function startAdmin(options: AdminOptions): Promise<Admin> {
  const pages = await pagesOf(options);
  const { log, throttledLog, option } = options;
  const connections = new AdminConnections({
    max: maxConnections(),
    onConnection: (socket) => readRequest(socket, pages.server),
    onDropped: () => throttledLog.write("warn", { option }, "connection dropped: too many connections on this port"),
  });
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => connections.add(socket));
  const address = await listen(server, options);
  server.on("error", (error) => throttledLog.write("error", { err: error, option }, "a listener failed"));
  log.debug({ address: address.address, port: address.port, option }, "listening");
  return {
    address,
    close: async () => {
      const closed = new Promise<unknown>((resolve) => server.close(resolve));
      connections.destroyAll();
      await Promise.all([closed, pages.close()]);
    },
  };
}

async function listen(server: Server, at: ListenAddress): Promise<AddressInfo> {
  const { port, host } = at;
  try {
    await once(server.listen({ port, host }), "listening");
  } catch (error) {
    throw listenError(error, at);
  }
  return server.address() as AddressInfo;
}
