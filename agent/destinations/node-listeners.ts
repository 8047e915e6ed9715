import { type AddressInfo, createServer, type Server } from "node:net";
import { listenError } from "../../shared/config/listen-address.ts";
import { ConfigError } from "../../shared/config/options.ts";
import type { AgentContext } from "../context/context.ts";
import { type DestinationPort, formatDestinationPort, parseDestinationPort } from "../context/destinations.ts";
import { forward } from "./forward.ts";
import { LocalAddress } from "./local-address.ts";
import type { ServerTunnel } from "./open-destination.ts";
import { AllowedSources, reachability } from "./sources.ts";

/** The ports of this node that are forwarded to its control plane (docs/node-to-control-plane.md). */
export class NodeListeners {
  readonly #context: AgentContext;
  readonly #tunnels: () => readonly ServerTunnel[];
  readonly #servers: Server[] = [];
  #local: LocalAddress | undefined;

  constructor(context: AgentContext, tunnels: () => readonly ServerTunnel[]) {
    this.#context = context;
    this.#tunnels = tunnels;
  }

  /** The addresses of the open listeners. */
  get addresses(): AddressInfo[] {
    return this.#servers.flatMap((server) => (server.listening ? [server.address() as AddressInfo] : []));
  }

  /** Adds the address to the node, if that is asked for, and listens. Rejects with a `ConfigError`. */
  async open(): Promise<void> {
    const { options, log } = this.#context;
    const { bindAddress: address, bindReachableAddress, interface: kind, target } = options;
    if (address === "") return;
    const why = bindReachableAddress ? undefined : reachability(address);
    if (why !== undefined) {
      const cure = "choose one of this node alone, such as 100.64.30.10, or give --bind-reachable-address";
      throw new ConfigError([`Other hosts could reach --bind-address ${address}: ${why}; ${cure}.`]);
    }
    if (kind !== "none") {
      this.#local = new LocalAddress(address, kind, log);
      await this.#local.add();
    }
    const admits = new AllowedSources(options.bindAllowSource);
    for (const port of target.map(parseDestinationPort)) await this.#listen(address, port, admits);
    log.info({ address, targets: target }, "the node reaches its control plane here");
  }

  async #listen(host: string, destination: DestinationPort, sources: AllowedSources): Promise<void> {
    const admits = (address: string): boolean => sources.includes(address);
    // Bytes that come before the server's answer wait in the kernel.
    const options = { allowHalfOpen: true, pauseOnConnect: true, noDelay: true, keepAlive: true };
    const server = createServer(options, (socket) => {
      void forward(socket, destination, admits, this.#tunnels, this.#context);
    });
    const { port } = destination;
    try {
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject).listen({ host, port }, resolve);
      });
    } catch (error) {
      const option = `--target ${formatDestinationPort(destination)}`;
      const hostOption = "--bind-address, or --interface lo to have it added";
      throw listenError(error, { port, host, option, hostOption });
    }
    server.on("error", (error) => this.#context.log.error({ err: error, port }, "a port of the node has failed"));
    this.#servers.push(server);
  }

  /** Takes no more connections; those that are open go on. */
  drain(): void {
    for (const server of this.#servers) server.close();
  }

  async close(): Promise<void> {
    this.drain();
    await this.#local?.remove();
  }
}
