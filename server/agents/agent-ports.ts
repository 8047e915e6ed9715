import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { TurnQueue } from "../../shared/basics/timers.ts";
import { InnerServers } from "../../shared/link/inner-tls.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { PacedClose } from "../../shared/listen/paced-close.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import { openPlainPort, openTlsPort } from "../listeners/open-port.ts";
import type { WaitingConnections } from "../listeners/port-connections.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { CarriedFacts, LinkOwners } from "../tunnels/links.ts";
import { UnauthenticatedCarriers } from "./admission.ts";
import { type AgentHost, CarriedConnection } from "./authenticate-agent.ts";
import { Carrying } from "./carrying.ts";
import type { AgentsContext } from "./context.ts";
import { findByHost } from "./refusal.ts";
import { type ServeHttp2, UpgradePort } from "./upgrade-port.ts";

type AgentPortName = "agents" | "agents-insecure";

/** The parts of a server that the agents' ports use. */
interface AgentsSurroundings {
  /** The waiting connections of all TCP ports together. */
  readonly waiting: WaitingConnections;
  /** The other servers, if there is a directory. */
  readonly owners?: LinkOwners | undefined;
  readonly serveHttp2: ServeHttp2;
  /** The agents' side of a cluster that is served. */
  agentsOf(cluster: string): AgentHost | undefined;
}

interface OpenPort {
  readonly name: AgentPortName;
  readonly address: AddressInfo;
  readonly listener: Acceptor;
  readonly upgrades: UpgradePort;
}

/**
 * The agents' ports: over TLS, and in clear behind a balancer that has ended TLS. A link can go on over either, so both
 * open and close together; only the bounds of waiting connections are each port's own.
 */
export class AgentPorts {
  readonly #agentsOf: (cluster: string) => AgentHost | undefined;
  readonly #serveHttp2: ServeHttp2;
  readonly #context: AgentsContext;
  readonly #ports: OpenPort[] = [];
  /** Agents of both ports lose their connections together, with a path or a balancer. */
  readonly #pacedClose = new PacedClose(new TurnQueue());
  /** Takes the connections that other servers carry here. */
  #carried: UpgradePort | undefined;

  constructor({ waiting, owners, serveHttp2, agentsOf }: AgentsSurroundings, context: ServerContext) {
    const { maxInnerHandshakes } = context.options;
    this.#agentsOf = agentsOf;
    this.#serveHttp2 = serveHttp2;
    this.#context = {
      ...context,
      waiting,
      beforeHello: new UnauthenticatedCarriers(maxInnerHandshakes),
      innerHandshakes: new UnauthenticatedCarriers(maxInnerHandshakes),
      innerServers: new InnerServers(),
      turns: new TurnQueue(),
      carrying: owners && new Carrying(owners, context),
    };
    context.metrics.hops.watch(() => ({
      toOwners: this.#context.carrying?.size ?? 0,
      fromPeers: this.#carried?.connections.size ?? 0,
    }));
  }

  /** From now on other servers may carry connections here. */
  async openCarried(): Promise<void> {
    if (this.#context.carrying === undefined) return;
    this.#carried = await UpgradePort.create({ listener: "agents" }, this.#context);
  }

  /** Opens the TLS port; rejects with a `ConfigError`. */
  async openSecure(hosts: VirtualHosts<ClusterVirtualHost>): Promise<void> {
    const { agentPort: port, agentBindAddress: host, agentProxyProtocol: proxyProtocol } = this.#context.options;
    const hostNamed = (name: string) => hosts.find(name);
    const own = { listener: "agents", hostNamed, serveHttp2: this.#serveHttp2 } as const;
    const upgrades = await UpgradePort.create(own, this.#context);
    const opened = await openTlsPort(
      {
        name: "agents",
        hosts,
        proxyProtocol,
        port,
        host,
        option: "--agent-port",
        hostOption: "--agent-bind-address",
        keepaliveMs: 0, // the carrier has its own
        pacedClose: this.#pacedClose,
        onConnection: (connection) => upgrades.take(connection),
      },
      this.#context,
    );
    this.#ports.push({ name: "agents", upgrades, ...opened });
  }

  /** Opens the port in clear, where the request's Host names the cluster; rejects with a `ConfigError`. */
  async openInsecure(hosts: VirtualHosts<ClusterVirtualHost>): Promise<void> {
    const { agentInsecurePort: port, agentInsecureBindAddress: host } = this.#context.options;
    const { agentInsecureProxyProtocol: proxyProtocol, agentInsecureTrustedCidrs: trustedCidrs } =
      this.#context.options;
    const hostOf = (name: string, address: string) => findByHost(name, address, hosts);
    const upgrades = await UpgradePort.create({ listener: "agents-insecure", hostOf }, this.#context);
    const opened = await openPlainPort(
      {
        name: "agents-insecure",
        proxyProtocol,
        trustedCidrs,
        port,
        host,
        option: "--agent-insecure-port",
        hostOption: "--agent-insecure-bind-address",
        keepaliveMs: 0,
        pacedClose: this.#pacedClose,
        onConnection: (connection) => upgrades.take(connection as IncomingConnection<AgentHost>),
      },
      this.#context,
    );
    this.#ports.push({ name: "agents-insecure", upgrades, ...opened });
  }

  /** See `TakeCarried`. */
  takeCarried(stream: Duplex, facts: CarriedFacts, via: string): void {
    const host = this.#agentsOf(facts.cluster);
    if (host === undefined) {
      throw new CulvertError("unknown_cluster", `cluster "${printable(facts.cluster, 64)}" is not served here`);
    }
    if (this.#carried === undefined || (this.#context.draining() && this.#context.links.size === 0)) {
      throw new CulvertError("draining", "this server is shutting down, and has no links any more");
    }
    this.#carried.take(new CarriedConnection(stream, host, facts, via));
  }

  get #upgradePorts(): UpgradePort[] {
    const carried = this.#carried === undefined ? [] : [this.#carried];
    return [...this.#ports.map(({ upgrades }) => upgrades), ...carried];
  }

  get addresses(): Partial<Record<AgentPortName, AddressInfo>> {
    return Object.fromEntries(this.#ports.map(({ name, address }) => [name, address]));
  }

  /** For readiness. */
  states(): { readonly name: string; readonly up: boolean }[] {
    return this.#ports.map(({ name, listener }) => ({ name, up: listener.listening }));
  }

  stopAccepting(): void {
    for (const { listener } of this.#ports) listener.stopAccepting();
    this.#pacedClose.end();
  }

  /** Ends the connections whose request has not come. */
  destroyWaiting(): void {
    for (const { connections } of this.#upgradePorts) connections.destroyWaiting();
  }

  /** Resolves when the last connection has closed, or after `deadlineMs`. */
  async empty(deadlineMs: number): Promise<void> {
    await Promise.all(this.#upgradePorts.map(({ connections }) => connections.empty(deadlineMs)));
  }

  destroyAll(): void {
    for (const { connections } of this.#upgradePorts) connections.resetAll();
    for (const { listener } of this.#ports) listener.destroyAll();
    this.#pacedClose.end();
  }
}
