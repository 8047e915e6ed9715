import type { AddressInfo } from "node:net";
import type { SecureVersion, TLSSocket } from "node:tls";
import { type TlsDoor, type TlsDoors, TlsListener } from "../../shared/net/tls.ts";
import type { FailedHandshake } from "../../shared/net/waiting-room.ts";
import { printable } from "../../shared/outcomes.ts";
import { listenError } from "../../shared/process/listen-error.ts";
import type { Logger } from "../../shared/process/logger.ts";
import { ConfigError } from "../../shared/process/options.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import { SourceCidrs } from "../clusters/source-cidrs.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";

/** One of the ports that callers and agents come to over TLS. */
export interface TlsPort<Door extends TlsDoor> {
  readonly name: "callers" | "agents";
  readonly doors: TlsDoors<Door>;
  readonly proxyProtocol: "off" | "optional" | "required";
  readonly port: number;
  readonly host: string;
  /** The flag that moves the port, for the error text. */
  readonly option: string;
  /** TCP keepalive, ms; 0: off. */
  readonly keepaliveMs: number;
  /** Its clients obey when they are told to come back later. */
  readonly turnsAway: boolean;
  /** `backInMs`: there are too many; tell this one to come back after so long. */
  onSecure(socket: TLSSocket, door: Door, backInMs: number | undefined): void;
}

export interface TlsPortDeps {
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
  readonly strangers: StrangerLog;
}

/** Which option a dropped connection came up against. */
const BOUNDS = {
  dropped: "--max-handshakes",
  crowded: "--max-waiting-handshakes",
  late: "--handshake-timeout",
} as const satisfies Partial<Record<FailedHandshake["how"], string>>;

/** Opens the port; rejects with a `ConfigError` that names the file or the flag at fault. */
export async function openTlsPort<Door extends TlsDoor>(
  port: TlsPort<Door>,
  deps: TlsPortDeps,
): Promise<{ listener: TlsListener<Door>; address: AddressInfo }> {
  const listener = createListener(port, deps);
  try {
    return { listener, address: await listener.listen(port.port, port.host) };
  } catch (error) {
    throw listenError(error, port);
  }
}

function createListener<Door extends TlsDoor>(
  { name, doors, proxyProtocol, keepaliveMs, turnsAway, onSecure }: TlsPort<Door>,
  { options, metrics, log, strangers }: TlsPortDeps,
): TlsListener<Door> {
  const balancers = new SourceCidrs(options.proxyProtocolTrustedCidrs);
  const trusts = (address: string) => balancers.includes(address);
  try {
    return new TlsListener({
      doors,
      proxyProtocol: proxyProtocol === "off" ? undefined : { required: proxyProtocol === "required", trusts },
      minVersion: options.tlsMinVersion as SecureVersion,
      ciphers: options.cipherSuites,
      handshakeTimeoutMs: options.handshakeTimeoutMs,
      maxHandshakes: options.maxHandshakes,
      maxWaitingHandshakes: options.maxWaitingHandshakes,
      turnsAway,
      backlog: options.listenBacklog,
      keepAliveMs: keepaliveMs === 0 ? undefined : keepaliveMs,
      onSecure,
      onHandshakeFailed,
      onError: (error) => log.error({ err: error, listener: name }, "a listener failed"),
    });
  } catch (error) {
    throw new ConfigError([`The listener for ${name}: ${(error as Error).message}.`], { cause: error });
  }

  function onHandshakeFailed({ how, error, remote }: FailedHandshake): void {
    metrics.handshakeFailed(name);
    const line = { listener: name, remote, reason: printable(error.message) };
    // Who goes without a word is a balancer's probe or a scanner of ports; who complains has something to say.
    if (how === "silent") log.debug(line, "TLS handshake failed");
    else if (how === "failed") strangers.tell("info", line, "TLS handshake failed");
    else strangers.tell("warn", line, `TLS handshake dropped (${BOUNDS[how]})`);
  }
}
