import type { AddressInfo } from "node:net";
import type { SecureVersion } from "node:tls";
import { LOOPBACK } from "../../shared/address/network.ts";
import { type ListenAddress, listenError } from "../../shared/config/listen-address.ts";
import { ConfigError } from "../../shared/config/options.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { Acceptor, AcceptRules } from "../../shared/listen/acceptor.ts";
import type { FailedHandshake } from "../../shared/listen/handshake-backlog.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import {
  type HostedConnection,
  plainListener,
  TlsListener,
  type VirtualHost,
  type VirtualHosts,
} from "../../shared/listen/listeners.ts";
import type { PacedClose } from "../../shared/listen/paced-close.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { SourceCidrs } from "../clusters/access-rules.ts";
import type { ListenerName, ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import { handshakeFailure } from "./handshake-failures.ts";

/** One of the TCP ports that callers and agents connect to. */
interface Port extends ListenAddress {
  readonly name: Exclude<ListenerName, "unix">;
  readonly proxyProtocol: "off" | "optional" | "required";
  /** TCP keepalive, ms; 0: off. */
  readonly keepaliveMs: number;
  /** Whether its clients come back later when they are told to. */
  readonly turnsAway: boolean;
  /** How its connections end if many are lost together. */
  readonly pacedClose?: PacedClose;
  /** See `AcceptRules`. */
  readonly mostUnread?: number;
}

/** A port that callers or agents connect to over TLS. */
export interface TlsPort<Host extends VirtualHost> extends Port {
  readonly name: "callers" | "agents" | "peers";
  readonly hosts: VirtualHosts<Host>;
  onConnection(connection: HostedConnection<Host>): void;
}

/** The port for agents in clear, behind a balancer that has ended their TLS. */
export interface PlainPort extends Port {
  /** Networks, beside loopback, from which connections are accepted. */
  readonly trustedCidrs: readonly string[];
  onConnection(connection: IncomingConnection): void;
}

export interface PortDeps {
  readonly options: Pick<
    ServerOptions,
    | "tlsMinVersion"
    | "cipherSuites"
    | "handshakeTimeoutMs"
    | "maxHandshakes"
    | "maxWaitingHandshakes"
    | "listenBacklog"
    | "proxyProtocolTrustedCidrs"
  >;
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  readonly throttledLog: ThrottledLog;
  /** The account of connections whose cluster is not known yet. */
  readonly memory: Pick<MemoryAccount, "hold" | "enter">;
}

/** Opens a TLS port; rejects with a `ConfigError` that names the file or the flag at fault. */
export async function openTlsPort<Host extends VirtualHost>(
  port: TlsPort<Host>,
  deps: PortDeps,
): Promise<{ listener: TlsListener<Host>; address: AddressInfo }> {
  return await listening(createTlsListener(port, deps), port);
}

function createTlsListener<Host extends VirtualHost>(port: TlsPort<Host>, deps: PortDeps): TlsListener<Host> {
  const { hosts, onConnection } = port;
  const { tlsMinVersion, cipherSuites: ciphers } = deps.options;
  const rules = acceptRules(port, deps, MESSAGES.tls);
  try {
    return new TlsListener({ ...rules, hosts, minVersion: tlsMinVersion as SecureVersion, ciphers, onConnection });
  } catch (error) {
    throw new ConfigError([`The listener for ${port.name}: ${(error as Error).message}.`], { cause: error });
  }
}

/** Opens a port in clear; rejects with a `ConfigError` that names the flag at fault. */
export async function openPlainPort(
  port: PlainPort,
  deps: PortDeps,
): Promise<{ listener: Acceptor; address: AddressInfo }> {
  const trusted = new SourceCidrs([...LOOPBACK, ...port.trustedCidrs]);
  const listener = plainListener({
    ...acceptRules(port, deps, MESSAGES.plain),
    admits: (address) => trusted.includes(address),
    onConnection: port.onConnection,
  });
  return await listening(listener, port);
}

async function listening<L extends { listen(port: number, host: string): Promise<AddressInfo> }>(
  listener: L,
  port: Port,
): Promise<{ listener: L; address: AddressInfo }> {
  try {
    return { listener, address: await listener.listen(port.port, port.host) };
  } catch (error) {
    throw listenError(error, port);
  }
}

/** The option that names the bound by which a connection was dropped. */
const BOUNDS = {
  dropped: "--max-handshakes",
  crowded: "--max-waiting-handshakes",
  late: "--handshake-timeout",
  untrusted: "--agent-insecure-trusted-cidrs",
} as const satisfies Partial<Record<FailedHandshake["how"], string>>;

/** Log messages for connections that fail before their request. */
export const MESSAGES = {
  tls: { failed: "TLS handshake failed", dropped: "TLS handshake dropped", reasonOf: handshakeFailure },
  plain: {
    failed: "connection failed before its request",
    dropped: "connection dropped before its request",
    reasonOf: ({ message }: Error) => printable(message),
  },
} as const;

/** The bounds for unauthenticated peers on a port, and the log of the connections that fail. */
function acceptRules(
  { name, proxyProtocol, keepaliveMs, turnsAway, pacedClose, mostUnread }: Port,
  { options, metrics, log, throttledLog, memory }: PortDeps,
  { failed, dropped, reasonOf }: (typeof MESSAGES)[keyof typeof MESSAGES],
): AcceptRules {
  const balancers = new SourceCidrs(options.proxyProtocolTrustedCidrs);
  const trusts = (address: string) => balancers.includes(address);
  return {
    proxyProtocol: proxyProtocol === "off" ? undefined : { required: proxyProtocol === "required", trusts },
    handshakeTimeoutMs: options.handshakeTimeoutMs,
    maxHandshakes: options.maxHandshakes,
    maxWaitingHandshakes: options.maxWaitingHandshakes,
    turnsAway,
    mostUnread,
    backlog: options.listenBacklog,
    memory,
    keepAliveMs: keepaliveMs === 0 ? undefined : keepaliveMs,
    pacedClose,
    onHandshakeFailed,
    // It is seldom called, because libuv does not report a lack of descriptors (see DescriptorWatch).
    onError: (error) => throttledLog.write("error", { err: error, listener: name }, "a listener failed"),
  };

  function onHandshakeFailed({ how, error, remote }: FailedHandshake): void {
    if (how === "untrusted") metrics.untrusted(name);
    else metrics.handshakeFailed(name);
    const line = { listener: name, remote, reason: reasonOf(error) };
    // A client that closes without a byte is a balancer's probe or a port scanner.
    if (how === "silent") log.debug(line, failed);
    else if (how === "failed") throttledLog.write("info", line, failed);
    else throttledLog.write("warn", line, `${dropped} (${BOUNDS[how]})`);
  }
}
