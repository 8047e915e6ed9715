import { lookup } from "node:dns/promises";
import { EventEmitter } from "node:events";
import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { SocksClient, type SocksClientOptions } from "socks";
import { formatTarget, type Target } from "../address/target.ts";
import { CHECK_PASSWORD, WITHHELD } from "./auth/scheme.ts";
import { dialTcp, lateName, networkFault } from "./dial-tcp.ts";
import { RouteFault, type RouteFaultCode } from "./fault.ts";
import { formatProxy, type LoginObserver, type ProxyCredentials, type ProxyServer } from "./proxy-route.ts";

export interface SocksOptions {
  /** Asked once for each attempt: what comes is sent to the proxy if it wants to know. May reject with a `RouteFault`. */
  readonly credentials: () => Promise<ProxyCredentials | undefined>;
  /** See `ProxyRoute`; `credentials` gives what may be sent all the same. */
  readonly isNamedInClear?: boolean | undefined;
  readonly showing?: LoginObserver | undefined;
}

/** A length is one byte (RFC 1928 §4, RFC 1929 §2); the library writes longer ones without a look. */
const MAX_BYTES = 255;

/**
 * A connection to `to` through a SOCKS 5 proxy, with whatever came behind the proxy's answer still to be read.
 * Rejects with a `RouteFault`; an abort is a `timeout`, and `dns` before a name has resolved.
 */
export async function openThroughSocks(
  proxy: ProxyServer,
  to: Target,
  options: SocksOptions,
  signal: AbortSignal,
): Promise<Socket> {
  const at = formatProxy(proxy);
  const credentials = await options.credentials();
  for (const text of [to.host, credentials?.user ?? "", credentials?.password ?? ""]) {
    if (Buffer.byteLength(text) <= MAX_BYTES) continue;
    throw new RouteFault("proxy_protocol", `names, users and passwords for ${at} have at most ${MAX_BYTES} bytes`, {
      at,
    });
  }
  const destination = proxy.scheme === "socks5" ? await resolve(to, signal) : to;
  const socket = await dialTcp(proxy, at, signal);
  const onAbort = (): void => void socket.destroy();
  signal.addEventListener("abort", onAbort);
  try {
    signal.throwIfAborted();
    if (credentials !== undefined && options.showing !== undefined) watchLogin(socket, options.showing);
    await speakSocks(socket, proxy, destination, credentials, to);
    signal.throwIfAborted();
    return socket;
  } catch (error) {
    socket.destroy();
    if (signal.aborted) throw timeout(proxy, to);
    const wantsLogin = error instanceof RouteFault && error.fault === "proxy_auth_required";
    throw wantsLogin && options.isNamedInClear === true ? proxyFault(proxy, "proxy_auth_withheld", WITHHELD) : error;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/**
 * The conversation with the proxy on a connection to it, up to its yes. Rejects with a `RouteFault`, which calls the
 * destination `shown`: its name may have been resolved.
 */
export async function speakSocks(
  connection: Duplex,
  proxy: ProxyServer,
  to: Target,
  credentials: ProxyCredentials | undefined,
  shown = to,
): Promise<void> {
  try {
    await negotiate(connection, {
      command: "connect",
      destination: { host: to.host, port: to.port },
      proxy: {
        host: proxy.host,
        port: proxy.port,
        type: 5,
        ...(credentials === undefined ? {} : { userId: credentials.user, password: credentials.password }),
      },
    });
  } catch (error) {
    const { message } = error as Error;
    if (message === "Proxy connection timed out") throw timeout(proxy, shown);
    throw socksFault(message, proxy, shown, credentials !== undefined);
  }
}

function timeout(proxy: ProxyServer, to: Target): RouteFault {
  return proxyFault(proxy, "timeout", `took the connection and opened none to ${formatTarget(to)}`);
}

/**
 * Lets the library talk. It gets the proxy's bytes one by one, so that it never reads too much: what it has read behind
 * the answer it would give back a turn later, when the end of the connection may have been emitted already.
 */
function negotiate(connection: Duplex, options: SocksClientOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const client = new SocksClient(options);
    // As much of a socket as the library uses.
    const bytewise = Object.assign(new EventEmitter(), {
      write: (bytes: Buffer) => connection.write(bytes),
      destroy: () => connection.destroy(),
      pause: () => {},
      resume: () => {},
    });
    let isOver = false;
    const onData = (chunk: Buffer): void => {
      let at = 0;
      while (at < chunk.length && !isOver) bytewise.emit("data", chunk.subarray(at, ++at));
      if (isOver && at < chunk.length && !connection.destroyed) connection.unshift(chunk.subarray(at));
    };
    const onError = (error: Error): void => void bytewise.emit("error", error);
    const onClose = (): void => void bytewise.emit("close");
    const stop = (): void => {
      isOver = true;
      connection.pause();
      connection.off("data", onData).off("error", onError).off("close", onClose);
    };
    client.once("established", ({ remoteHost }) => {
      stop();
      if (remoteHost !== undefined) resolve();
      // The library passes over an address of a type that it does not know, and nobody can tell where the answer ends.
      else reject(new Error("the answer has an address of an unknown type"));
    });
    client.once("error", (error) => {
      stop();
      reject(error);
    });
    client.connect(bytewise as unknown as Socket);
    connection.on("data", onData).on("error", onError).on("close", onClose);
  });
}

/** The library tells nobody whether the proxy asked for the password (RFC 1928 §3), nor that it took it (RFC 1929 §2). */
function watchLogin(socket: Socket, showing: LoginObserver): void {
  const said: number[] = [];
  const onData = (chunk: Buffer): void => {
    for (const byte of chunk) {
      said.push(byte);
      if (said.length === 2 && byte === PASSWORD_WANTED) showing.onShown();
      if (said.length === 4 && byte === PASSWORD_TAKEN && said[1] === PASSWORD_WANTED) showing.onTaken(true);
      if (said.length === 4) return void socket.off("data", onData);
    }
  };
  socket.on("data", onData);
}

const PASSWORD_WANTED = 2;
const PASSWORD_TAKEN = 0;

/** `socks5`: the name is ours to resolve, to one address: more proxies reach what has an IPv4 address by that. */
async function resolve(to: Target, signal: AbortSignal): Promise<Target> {
  if (isIP(to.host) !== 0) return to;
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  try {
    signal.throwIfAborted();
    const { address } = await Promise.race([lookup(to.host, { order: "ipv4first" }), aborted]);
    return { host: address, port: to.port };
  } catch (error) {
    if (signal.aborted) throw lateName(to.host, formatTarget(to));
    throw networkFault(error as NodeJS.ErrnoException, to.host, formatTarget(to));
  }
}

function proxyFault(proxy: ProxyServer, fault: RouteFaultCode, sentence: string): RouteFault {
  const at = formatProxy(proxy);
  return new RouteFault(fault, `the proxy ${at} ${sentence}`, { at });
}

/** The library's error itself holds the password: only its words leave here. */
function socksFault(message: string, proxy: ProxyServer, to: Target, authenticated: boolean): RouteFault {
  if (message === "Socket closed") {
    return proxyFault(proxy, "proxy_closed", "closed the connection before it opened the way");
  }
  if (message.includes("Authentication failed")) {
    return authenticated
      ? proxyFault(proxy, "proxy_auth_refused", `refuses the user or the password: ${CHECK_PASSWORD}`)
      : proxyFault(proxy, "proxy_auth_required", NEEDS_CREDENTIALS);
  }
  if (message.includes("no accepted authentication type")) {
    return authenticated
      ? proxyFault(proxy, "proxy_auth_unsupported", TAKES_NO_PASSWORD)
      : proxyFault(proxy, "proxy_auth_required", NEEDS_CREDENTIALS);
  }
  const reply = REPLIES[/^Socks5 proxy rejected connection - (\w+)$/.exec(message)?.[1] ?? ""];
  if (reply !== undefined) {
    const { fault, words, sentence } = reply;
    return proxyFault(proxy, fault, `${sentence(formatTarget(to))} (SOCKS reply ${words})`);
  }
  if (/^(read|write) E/.test(message)) {
    return proxyFault(proxy, "proxy_closed", `broke the connection off (${message})`);
  }
  return proxyFault(proxy, "proxy_protocol", "does not speak SOCKS 5: check scheme and port of the proxy");
}

const NEEDS_CREDENTIALS = "wants a user and password: put them in its URL or in --proxy-credentials-file";
const TAKES_NO_PASSWORD =
  "takes neither the user and password of its URL or of --proxy-credentials-file nor a connection without (RFC 1928 §3): ask its administrators for a way in by a password (RFC 1929), GSS-API is not spoken here";

/** What a proxy says in place of a connection. */
interface Reply {
  readonly fault: RouteFaultCode;
  /** Its number, and the words of RFC 1928 §6. */
  readonly words: string;
  readonly sentence: (to: string) => string;
}

/** Whatever is wrong behind the proxy is known only by what it says. */
const REPLIES: Readonly<Record<string, Reply>> = {
  Failure: {
    fault: "proxy_unavailable",
    words: "1: general SOCKS server failure",
    sentence: (to) => `opens no connection to ${to} and says no more: its log may`,
  },
  NotAllowed: {
    fault: "proxy_forbidden",
    words: "2: not allowed by ruleset",
    sentence: (to) => `does not allow connections to ${to}: ask its administrators to allow this destination`,
  },
  NetworkUnreachable: cannotReach("3: network unreachable"),
  HostUnreachable: cannotReach("4: host unreachable"),
  ConnectionRefused: cannotReach("5: connection refused"),
  TTLExpired: cannotReach("6: TTL expired"),
  CommandNotSupported: {
    fault: "proxy_protocol",
    words: "7: command not supported",
    sentence: (to) => `makes no outgoing connections, such as that to ${to}`,
  },
  AddressNotSupported: {
    fault: "proxy_unavailable",
    words: "8: address type not supported",
    sentence: (to) => `does not take ${to}: a name is resolved here with socks5://, and by the proxy with socks5h://`,
  },
};

function cannotReach(words: string): Reply {
  const sentence = (to: string): string =>
    `says that it cannot reach ${to}: check its name and port as the proxy sees them`;
  return { fault: "proxy_unavailable", words, sentence };
}
