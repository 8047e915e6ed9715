import type { ListenAddress } from "../../shared/config/listen-address.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { AcceptRules } from "../../shared/listen/acceptor.ts";
import type { FailedHandshake } from "../../shared/listen/handshake-backlog.ts";
import type { PacedClose } from "../../shared/listen/paced-close.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { SourceCidrs } from "../clusters/source-cidrs.ts";
import type { ListenerName, ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import { handshakeWords } from "./handshake-failures.ts";

/** One of the TCP ports that callers and agents come to. */
export interface Port extends ListenAddress {
  readonly name: Exclude<ListenerName, "unix">;
  readonly proxyProtocol: "off" | "optional" | "required";
  /** TCP keepalive, ms; 0: off. */
  readonly keepaliveMs: number;
  /** Its clients obey when they are told to come back later. */
  readonly turnsAway: boolean;
  /** How its connections end, if many are lost together. */
  readonly pacedClose?: PacedClose;
  /** See `AcceptRules`. */
  readonly mostUnread?: number;
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
  /** What those hold who have not said yet which cluster's they are. */
  readonly memory: Pick<MemoryAccount, "hold" | "enter">;
}

/** Which option a dropped connection came up against. */
const BOUNDS = {
  dropped: "--max-handshakes",
  crowded: "--max-waiting-handshakes",
  late: "--handshake-timeout",
  untrusted: "--agent-insecure-trusted-cidrs",
} as const satisfies Partial<Record<FailedHandshake["how"], string>>;

/** What the log says of a connection that came to nothing, by what its port speaks. */
export const WORDS = {
  tls: { failed: "TLS handshake failed", dropped: "TLS handshake dropped", reasonOf: handshakeWords },
  plain: {
    failed: "connection failed before its request",
    dropped: "connection dropped before its request",
    reasonOf: ({ message }: Error) => printable(message),
  },
} as const;

/** How much the port takes from throttledLog, and who hears of those that came to nothing. */
export function acceptRules(
  { name, proxyProtocol, keepaliveMs, turnsAway, pacedClose, mostUnread }: Port,
  { options, metrics, log, throttledLog, memory }: PortDeps,
  { failed, dropped, reasonOf }: (typeof WORDS)[keyof typeof WORDS],
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
    // Seldom, since libuv tells nothing of a want of descriptors (see DescriptorWatch); where it comes, for each connection.
    onError: (error) => throttledLog.write("error", { err: error, listener: name }, "a listener failed"),
  };

  function onHandshakeFailed({ how, error, remote }: FailedHandshake): void {
    if (how === "untrusted") metrics.untrusted(name);
    else metrics.handshakeFailed(name);
    const line = { listener: name, remote, reason: reasonOf(error) };
    // Who goes without a word is a balancer's probe or a scanner of ports; who complains has something to say.
    if (how === "silent") log.debug(line, failed);
    else if (how === "failed") throttledLog.write("info", line, failed);
    else throttledLog.write("warn", line, `${dropped} (${BOUNDS[how]})`);
  }
}
