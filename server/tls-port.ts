import type { AddressInfo } from "node:net";
import type { SecureVersion, TLSSocket } from "node:tls";
import { TlsListener } from "../shared/net/tls.ts";
import type { TlsFiles } from "../shared/net/tls-material.ts";
import type { FailedHandshake } from "../shared/net/waiting-room.ts";
import { printable } from "../shared/outcomes.ts";
import { listenError } from "../shared/process/listen-error.ts";
import type { Logger } from "../shared/process/logger.ts";
import { ConfigError } from "../shared/process/options.ts";
import type { ServerMetrics } from "./metrics.ts";
import type { ServerOptions } from "./options.ts";
import type { StrangerLog } from "./stranger-log.ts";

/** One of the ports that callers and agents come to over TLS. */
export interface TlsPort {
  readonly name: "callers" | "agents";
  readonly material: TlsFiles;
  readonly port: number;
  readonly host: string;
  /** The flag that moves the port, for the error text. */
  readonly option: string;
  /** TCP keepalive, ms; 0: off. */
  readonly keepaliveMs: number;
  /** Its clients obey when they are told to come back later. */
  readonly turnsAway: boolean;
  /** Its certificates have changed. */
  onRenewed?(): void;
  /** `backInMs`: there are too many; tell this one to come back after so long. */
  onSecure(socket: TLSSocket, backInMs: number | undefined): void;
}

export interface TlsPortDeps {
  readonly options: Pick<
    ServerOptions,
    "tlsMinVersion" | "cipherSuites" | "handshakeTimeoutMs" | "maxHandshakes" | "maxWaitingHandshakes" | "listenBacklog"
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
export async function openTlsPort(
  port: TlsPort,
  deps: TlsPortDeps,
): Promise<{ listener: TlsListener; address: AddressInfo }> {
  const listener = createListener(port, deps);
  try {
    return { listener, address: await listener.listen(port.port, port.host) };
  } catch (error) {
    throw listenError(error, port);
  }
}

function createListener(
  { name, material, keepaliveMs, turnsAway, onSecure, onRenewed }: TlsPort,
  { options, metrics, log, strangers }: TlsPortDeps,
): TlsListener {
  try {
    return new TlsListener({
      material,
      minVersion: options.tlsMinVersion as SecureVersion,
      ciphers: options.cipherSuites,
      handshakeTimeoutMs: options.handshakeTimeoutMs,
      maxHandshakes: options.maxHandshakes,
      maxWaitingHandshakes: options.maxWaitingHandshakes,
      turnsAway,
      backlog: options.listenBacklog,
      keepAliveMs: keepaliveMs === 0 ? undefined : keepaliveMs,
      onSecure: (socket, _raw, backInMs) => onSecure(socket, backInMs),
      onHandshakeFailed,
      ...(onRenewed === undefined ? {} : { onRenewed }),
      log,
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
