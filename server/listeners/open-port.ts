import type { AddressInfo } from "node:net";
import type { SecureVersion, TLSSocket } from "node:tls";
import { LOOPBACK } from "../../shared/address/network.ts";
import { type ListenAddress, listenError } from "../../shared/config/listen-address.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { type AcceptRules, EndedInHandshake, type FailedHandshake } from "../../shared/listen/accept-rules.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import {
  type HostedConnection,
  plainListener,
  tlsListener,
  type VirtualHost,
  type VirtualHosts,
} from "../../shared/listen/listeners.ts";
import type { PacedClose } from "../../shared/listen/paced-close.ts";
import { printable } from "../../shared/outcomes.ts";
import { SourceCidrs } from "../clusters/access-rules.ts";
import type { ListenerName } from "../metrics/server-metrics.ts";
import type { ServerContext } from "../tunnels/context.ts";

/** A TCP port of the server: for callers, for agents, or for other servers. */
interface Port extends ListenAddress {
  readonly name: Exclude<ListenerName, "unix">;
  readonly proxyProtocol: "off" | "optional" | "required";
  /** TCP keepalive, ms; 0: off. */
  readonly keepaliveMs: number;
  /** How its connections end if many are lost together. */
  readonly pacedClose?: PacedClose;
}

/** A port over TLS. */
interface TlsPort<Host extends VirtualHost> extends Port {
  readonly name: "callers" | "http" | "agents" | "peers";
  readonly hosts: VirtualHosts<Host>;
  /** As in `TlsListenerOptions`. */
  readonly protocols?: readonly string[];
  onConnection(connection: HostedConnection<Host>): void;
}

/** The port for agents in clear, behind a balancer that has ended their TLS. */
interface PlainPort extends Port {
  /** Networks, beside loopback, from which connections are accepted. */
  readonly trustedCidrs: readonly string[];
  onConnection(connection: IncomingConnection): void;
}

/** A port that accepts connections, and where. */
interface ListeningPort {
  readonly listener: Acceptor;
  readonly address: AddressInfo;
}

/** Opens a TLS port; rejects with a `ConfigError` that names the file or the flag at fault. */
export async function openTlsPort<Host extends VirtualHost>(
  port: TlsPort<Host>,
  context: ServerContext,
): Promise<ListeningPort> {
  const { hosts, protocols, onConnection } = port;
  const { tlsMinVersion, cipherSuites: ciphers } = context.options;
  const rules = acceptRules(port, context, MESSAGES.tls);
  let listener: Acceptor;
  try {
    const minVersion = tlsMinVersion as SecureVersion;
    listener = tlsListener({ ...rules, hosts, protocols, minVersion, ciphers, onConnection });
  } catch (error) {
    throw new ConfigError([`The listener for ${port.name}: ${(error as Error).message}.`], { cause: error });
  }
  return await listening(listener, port);
}

/** Opens a port in clear; rejects with a `ConfigError` that names the flag at fault. */
export async function openPlainPort(port: PlainPort, context: ServerContext): Promise<ListeningPort> {
  const trusted = new SourceCidrs([...LOOPBACK, ...port.trustedCidrs]);
  const listener = plainListener({
    ...acceptRules(port, context, MESSAGES.plain),
    admits: (address) => trusted.includes(address),
    onConnection: port.onConnection,
  });
  return await listening(listener, port);
}

async function listening(listener: Acceptor, port: Port): Promise<ListeningPort> {
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
  { name, proxyProtocol, keepaliveMs, pacedClose }: Port,
  { options, metrics, log, throttledLog, unauthenticatedMemory: memory }: ServerContext,
  { failed, dropped, reasonOf }: (typeof MESSAGES)[keyof typeof MESSAGES],
): AcceptRules {
  const balancers = new SourceCidrs(options.proxyProtocolTrustedCidrs);
  const trusts = (address: string) => balancers.includes(address);
  return {
    proxyProtocol: proxyProtocol === "off" ? undefined : { required: proxyProtocol === "required", trusts },
    handshakeTimeoutMs: options.handshakeTimeoutMs,
    maxHandshakes: options.maxHandshakes,
    maxWaitingHandshakes: options.maxWaitingHandshakes,
    backlog: options.listenBacklog,
    memory,
    keepAliveMs: keepaliveMs === 0 ? undefined : keepaliveMs,
    pacedClose,
    onHandshakeFailed,
    // It is seldom called, because libuv does not report a lack of descriptors (see DescriptorWatch).
    onError: (error) => throttledLog.write("error", { err: error, listener: name }, "a listener failed"),
  };

  function onHandshakeFailed({ how, error, remote }: FailedHandshake): void {
    const line = { listener: name, remote, reason: reasonOf(error) };
    if (how === "flood") {
      throttledLog.write("warn", line, "this server has cut a connection that sent a flood");
      return;
    }
    if (how === "untrusted") metrics.untrusted(name);
    else metrics.handshakeFailed(name);
    // A client that closes without a byte is a balancer's probe or a port scanner.
    if (how === "silent") log.debug(line, failed);
    else if (how === "failed") throttledLog.write("info", line, failed);
    else throttledLog.write("warn", line, `${dropped} (${BOUNDS[how]})`);
  }
}

const NO_TLS = "the client does not speak TLS, and this port speaks nothing else";
const BROKEN_PROOF = "the client's certificate, or the proof that the key is its own, is broken";
const NO_SIGNATURE = "the client takes no signature that the key of our certificate can make";
const NO_KEY_EXCHANGE = "client and server have no key exchange in common";
/** Node.js and other clients verify a certificate after the handshake, and close the connection without an alert. */
const OR_REJECTED = "a client that does not accept our certificate may leave like this: its own log says so";

/** Sentences by the codes that Node makes of OpenSSL's reasons. */
const WORDS: Readonly<Record<string, string>> = {
  ERR_SSL_HTTP_REQUEST:
    "the client speaks plain HTTP, and this port speaks TLS: it needs a URL with https:// or wss://",
  ERR_SSL_HTTPS_PROXY_REQUEST:
    "the client sends its CONNECT in plain HTTP, and this port speaks TLS: it needs a proxy URL with https://",
  ERR_SSL_WRONG_VERSION_NUMBER: NO_TLS,
  ERR_SSL_UNKNOWN_PROTOCOL: NO_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NO_TLS,
  ERR_SSL_UNSUPPORTED_PROTOCOL: "the client speaks no TLS version that is taken here (--tls-min-version)",
  ERR_SSL_VERSION_TOO_LOW: "the client speaks no TLS version that is taken here (--tls-min-version)",
  ERR_SSL_NO_SHARED_CIPHER: "client and server have no cipher in common (--cipher-suites)",
  ERR_SSL_NO_SUITABLE_SIGNATURE_ALGORITHM: NO_SIGNATURE,
  ERR_SSL_NO_SHARED_SIGNATURE_ALGORITHMS: NO_SIGNATURE,
  ERR_SSL_NO_SUITABLE_KEY_SHARE: NO_KEY_EXCHANGE,
  ERR_SSL_NO_SHARED_GROUPS: NO_KEY_EXCHANGE,
  ERR_SSL_NO_SUITABLE_GROUPS: NO_KEY_EXCHANGE,
  ERR_SSL_BAD_SIGNATURE: BROKEN_PROOF,
  ERR_SSL_CERTIFICATE_VERIFY_FAILED: BROKEN_PROOF,
  ERR_SSL_UNEXPECTED_EOF_WHILE_READING: `the connection ended during the TLS handshake: ${OR_REJECTED}`,
  ERR_TLS_HANDSHAKE_TIMEOUT: "the client did not finish the handshake within --handshake-timeout",
  ECONNRESET: `the client reset the connection during the TLS handshake: ${OR_REJECTED}`,
};

/** An alert that the client has sent (RFC 8446 §6.2); OpenSSL puts the protocol in front of its name. */
const ALERT = /^ERR_SSL_.*ALERT_([A-Z_]+)$/;
const REJECTED = "the client does not accept our certificate";
const ALERTS: Readonly<Record<string, string>> = {
  UNKNOWN_CA: `${REJECTED}: it does not know the CA that signed it`,
  BAD_CERTIFICATE: `${REJECTED}: it does not know the CA that signed it, or asked for another name`,
  CERTIFICATE_UNKNOWN: `${REJECTED}: it does not know the CA that signed it, or asked for another name`,
  CERTIFICATE_EXPIRED: `${REJECTED}: by its clock it has expired, or is not valid yet`,
  CERTIFICATE_REVOKED: `${REJECTED}: it was revoked`,
  UNSUPPORTED_CERTIFICATE: `${REJECTED}: it cannot use one of this kind`,
  PROTOCOL_VERSION: "the client takes no TLS version that is spoken here",
  HANDSHAKE_FAILURE: "the client found nothing in common to go on with",
};

/** Why a TLS handshake has failed, as a sentence for an operator, with OpenSSL's code in brackets. */
export function handshakeFailure(error: NodeJS.ErrnoException & { readonly reason?: string }): string {
  const { code, message } = error;
  if (error instanceof EndedInHandshake) return `${message}: ${OR_REJECTED}`;
  if (code === undefined) return printable(message); // our own message
  const alert = ALERT.exec(code)?.[1];
  const words = alert === undefined ? WORDS[code] : (ALERTS[alert] ?? otherAlert(alert));
  return printable(`${words ?? error.reason ?? message} [${code}]`, 300);
}

function otherAlert(alert: string): string {
  return `the client ended it with the alert "${alert.toLowerCase().replaceAll("_", " ")}"`;
}

/** Why a client has closed a connection after its TLS handshake and before its request. */
export function closedEarlyReason({ errored }: Pick<TLSSocket, "errored">): string {
  const { code } = (errored ?? {}) as NodeJS.ErrnoException;
  return errored && ALERT.test(code ?? "") ? handshakeFailure(errored) : `it sent no request: ${OR_REJECTED}`;
}

/**
 * Logs a connection that its client has closed after the TLS handshake, before its request had come. A client with a
 * certificate of ours does not accept the server's certificate, which an operator wants to see; a client without one is
 * most often a balancer's probe, every few seconds.
 */
export function logClosedEarly(
  { socket, ...fields }: { listener: "callers" | "agents"; cluster: string; remote: string; socket: TLSSocket },
  { log, throttledLog }: ServerContext,
): void {
  const isSilent = socket.bytesRead === 0;
  const reason = isSilent ? closedEarlyReason(socket) : "only a part of a request has come";
  const message = `connection ended after its TLS handshake, without ${isSilent ? "a request" : "a whole request"}`;
  if (socket.authorized) throttledLog.write("info", { ...fields, reason }, message);
  else log.debug({ ...fields, reason }, message);
}
