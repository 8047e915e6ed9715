import type { AddressInfo } from "node:net";
import { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { InnerServers } from "../../shared/link/inner-tls.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { PacedClose } from "../../shared/listen/paced-close.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import type { PortDeps } from "../listeners/accept-rules.ts";
import { openPlainPort } from "../listeners/plain-port.ts";
import { openTlsPort } from "../listeners/tls-port.ts";
import type { ServerOptions } from "../options/options.ts";
import { AgentLog } from "./agent-log.ts";
import { AnonymousCarriers } from "./anonymous.ts";
import { doorByHost } from "./host.ts";
import { type UpgradeDeps, UpgradePort } from "./upgrade.ts";

type AgentPortName = "agents" | "agents-insecure";

export interface AgentPortsDeps extends PortDeps, Pick<UpgradeDeps, "links" | "draining" | "waiting"> {
  readonly options: ServerOptions;
  /** Too many connections of this port had asked for nothing, and the oldest was dropped. */
  onDropped(port: AgentPortName): void;
}

/** Where they are few, each may have larger buffers, 43 KiB more: 4 MiB in all. */
const MOST_UNREAD = 100;

interface OpenPort {
  readonly name: AgentPortName;
  readonly address: AddressInfo;
  readonly listener: Pick<Acceptor, "listening" | "endUnread" | "stopAccepting" | "destroyAll">;
  readonly upgrades: UpgradePort;
}

/**
 * The ports that agents come to: over TLS, and in clear from a balancer that has ended it. They are one to agents, whose
 * links go on over either, and open and close together; only how many strangers wait is each one's own.
 */
export class AgentPorts {
  readonly #deps: AgentPortsDeps;
  readonly #ports: OpenPort[] = [];
  readonly #common: Pick<UpgradeDeps, "beforeHello" | "innerHandshakes" | "innerServers" | "turns" | "agentLog">;
  /** Agents are lost together, and come back together, with a path or with a balancer: neither waits for the other. */
  readonly #pacedClose = new PacedClose(new TurnQueue());

  constructor(deps: AgentPortsDeps) {
    this.#deps = deps;
    this.#common = {
      beforeHello: new AnonymousCarriers(deps.options.maxInnerHandshakes),
      innerHandshakes: new AnonymousCarriers(deps.options.maxInnerHandshakes),
      innerServers: new InnerServers(),
      turns: new TurnQueue(),
      agentLog: new AgentLog(deps.log),
    };
  }

  /** Where agents bring their certificate; rejects with a `ConfigError`. */
  async openSecure(doors: VirtualHosts<ClusterVirtualHost>): Promise<void> {
    const { agentPort: port, agentBindAddress: host, agentProxyProtocol: proxyProtocol } = this.#deps.options;
    const upgrades = await this.#upgradePort("agents", { doorNamed: (name) => doors.find(name) });
    const opened = await openTlsPort(
      {
        ...{ name: "agents", hosts: doors, proxyProtocol, port, host, option: "--agent-port" },
        hostOption: "--agent-bind-address",
        keepaliveMs: 0, // the carrier has its own
        turnsAway: true,
        mostUnread: MOST_UNREAD,
        pacedClose: this.#pacedClose,
        onConnection: ({ socket, host, backInMs }) => upgrades.take(socket, host, backInMs),
      },
      this.#deps,
    );
    this.#ports.push({ name: "agents", upgrades, ...opened });
  }

  /** Where they come without one, and the Host of their request names the cluster; rejects with a `ConfigError`. */
  async openInsecure(doors: VirtualHosts<ClusterVirtualHost>): Promise<void> {
    const { agentInsecurePort: port, agentInsecureBindAddress: host } = this.#deps.options;
    const { agentInsecureProxyProtocol: proxyProtocol, agentInsecureTrustedCidrs: trustedCidrs } = this.#deps.options;
    const upgrades = await this.#upgradePort("agents-insecure", {
      doorOf: (request, address) => doorByHost(request, address, doors),
    });
    const opened = await openPlainPort(
      {
        ...{ name: "agents-insecure", proxyProtocol, trustedCidrs, port, host, option: "--agent-insecure-port" },
        hostOption: "--agent-insecure-bind-address",
        ...{ keepaliveMs: 0, turnsAway: true, pacedClose: this.#pacedClose },
        onConnection: ({ socket, backInMs }) => upgrades.take(socket, undefined, backInMs),
      },
      this.#deps,
    );
    this.#ports.push({ name: "agents-insecure", upgrades, ...opened });
  }

  #upgradePort(name: AgentPortName, doors: Pick<UpgradeDeps, "doorOf" | "doorNamed">): Promise<UpgradePort> {
    const onDropped = () => this.#deps.onDropped(name);
    return UpgradePort.create({ ...this.#deps, ...this.#common, ...doors, onDropped });
  }

  get addresses(): Partial<Record<AgentPortName, AddressInfo>> {
    return Object.fromEntries(this.#ports.map(({ name, address }) => [name, address]));
  }

  /** For readiness. */
  states(): { readonly name: string; readonly up: boolean }[] {
    return this.#ports.map(({ name, listener }) => ({ name, up: listener.listening }));
  }

  /** Clusters have come, gone or changed. */
  endUnread(): void {
    for (const { listener } of this.#ports) listener.endUnread();
  }

  stopAccepting(): void {
    for (const { listener } of this.#ports) listener.stopAccepting();
    this.#pacedClose.end();
  }

  /** Ends those who have not asked for anything. */
  destroyWaiting(): void {
    for (const { upgrades } of this.#ports) upgrades.sockets.destroyWaiting();
  }

  /** Resolves when the last connection has closed, or after `deadlineMs`. */
  async empty(deadlineMs: number): Promise<void> {
    await Promise.all(this.#ports.map(({ upgrades }) => upgrades.sockets.empty(deadlineMs)));
  }

  destroyAll(): void {
    for (const { upgrades, listener } of this.#ports) {
      upgrades.sockets.resetAll();
      listener.destroyAll();
    }
    this.#pacedClose.end();
  }

  /** After the last carrier. */
  async close(): Promise<void> {
    await Promise.all(this.#ports.map(({ upgrades }) => upgrades.close()));
  }
}
