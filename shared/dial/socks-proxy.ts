import { addAbortListener } from "node:events";
import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { addressBytes } from "../address/network.ts";
import { formatTarget, type Target } from "../address/target.ts";
import { GrowingBytes } from "../basics/bytes.ts";
import { untilAborted } from "../basics/promises.ts";
import { peerAction } from "../http/connection.ts";
import { NAMES } from "../names/lookup.ts";
import { CHECK_PASSWORD, type ProxyCredentials, WITHHELD } from "./auth/scheme.ts";
import { dialTcp, lookupTimeout, networkFault } from "./dial-tcp.ts";
import type { ProxyLogin } from "./proxy-credentials.ts";
import { formatProxy, type ProxyServer, RouteFault, type RouteFaultCode } from "./proxy-route.ts";
import { readUntil } from "./read-until.ts";

const VERSION = 5;
/** The version of the login (RFC 1929 §2). */
const LOGIN_VERSION = 1;
const METHOD = { none: 0, password: 2, unacceptable: 0xff } as const;
const COMMAND_CONNECT = 1;
const ADDRESS = { ipv4: 1, name: 3, ipv6: 4 } as const;
const SUCCEEDED = 0;
/** A length is one byte (RFC 1928 §4, RFC 1929 §2). */
const MAX_BYTES = 255;

/**
 * A connection to `to` through a SOCKS 5 proxy. It has an error listener, is paused, and still holds the bytes after
 * the proxy's answer. Rejects with a `RouteFault`; an abort gives `timeout`, or `dns` before a name has resolved.
 */
export async function openThroughSocks(
  proxy: ProxyServer,
  to: Target,
  options: ProxyLogin,
  signal: AbortSignal,
): Promise<Socket> {
  const at = formatProxy(proxy);
  const credentials = await options.credentials();
  for (const text of [to.host, credentials?.user ?? "", credentials?.password ?? ""]) {
    if (Buffer.byteLength(text) <= MAX_BYTES) continue;
    const message = `names, users and passwords for ${at} have at most ${MAX_BYTES} bytes`;
    throw new RouteFault("proxy_protocol", message, { at });
  }
  const target = proxy.scheme === "socks5" ? await resolve(to, signal) : to;
  const socket = await dialTcp(proxy, at, signal);
  using _ = addAbortListener(signal, () => socket.destroy());
  try {
    signal.throwIfAborted();
    await speakSocks(socket, { proxy, target, credentials, login: options.login, shown: to });
    signal.throwIfAborted();
    return socket;
  } catch (error) {
    socket.destroy();
    if (signal.aborted) {
      throw proxyFault(proxy, "timeout", `took the connection and opened none to ${formatTarget(to)}`);
    }
    const needsLogin = error instanceof RouteFault && error.fault === "proxy_auth_required";
    throw needsLogin && options.isUnverified === true ? proxyFault(proxy, "proxy_auth_withheld", WITHHELD) : error;
  }
}

interface SocksRequest {
  readonly proxy: ProxyServer;
  readonly target: Target;
  readonly credentials: ProxyCredentials | undefined;
  readonly login?: ProxyLogin["login"];
  /** The target in messages, before its name was resolved. */
  readonly shown?: Target;
}

/**
 * The handshake on a connection to the proxy, until the proxy has connected to the target. Rejects with a `RouteFault`.
 */
export async function speakSocks(connection: Duplex, request: SocksRequest): Promise<void> {
  const { proxy, target, credentials, login, shown = target } = request;
  const fail = (fault: RouteFaultCode, sentence: string): RouteFault => proxyFault(proxy, fault, sentence);
  const read = async (bytes: number): Promise<Buffer> => {
    const received = new GrowingBytes();
    const { found, error } = await readUntil(connection, (chunk) => {
      received.append(chunk);
      const { bytes: all } = received;
      return all.length < bytes ? undefined : { found: all.subarray(0, bytes), rest: all.subarray(bytes) };
    });
    if (found !== undefined) return found;
    const lost = error === undefined ? "closed the connection" : peerAction(error);
    throw fail("proxy_closed", `${lost ?? `lost the connection (${error?.code})`} before it opened the tunnel`);
  };

  const methods = credentials === undefined ? [METHOD.none] : [METHOD.none, METHOD.password];
  connection.write(Buffer.from([VERSION, methods.length, ...methods]));
  const [version, method] = await read(2);
  if (version !== VERSION) throw fail("proxy_protocol", NO_SOCKS);
  if (method === METHOD.password && credentials !== undefined) {
    login?.onSent();
    const texts = [credentials.user, credentials.password].map((text) => Buffer.from(text));
    const fields = texts.flatMap((text) => [Buffer.from([text.length]), text]);
    connection.write(Buffer.concat([Buffer.from([LOGIN_VERSION]), ...fields]));
    const [, status] = await read(2);
    if (status !== SUCCEEDED) throw fail("proxy_auth_refused", `refuses the user or the password: ${CHECK_PASSWORD}`);
    login?.onAccepted(true);
  } else if (method === METHOD.password || method === METHOD.unacceptable) {
    throw credentials === undefined
      ? fail("proxy_auth_required", NEEDS_CREDENTIALS)
      : fail("proxy_auth_unsupported", TAKES_NO_PASSWORD);
  } else if (method !== METHOD.none) {
    throw fail("proxy_protocol", NO_SOCKS);
  }

  connection.write(connectRequest(target));
  const [replyVersion, code = -1, , kind] = await read(4);
  const reply = REPLIES.get(code);
  if (replyVersion !== VERSION || (code !== SUCCEEDED && reply === undefined)) throw fail("proxy_protocol", NO_SOCKS);
  if (reply !== undefined) {
    const [fault, name, sentence] = reply;
    throw fail(fault, `${sentence(formatTarget(shown))} (SOCKS reply ${code}: ${name})`);
  }
  // The address that the proxy has bound says nothing to us, but the target's bytes begin after it.
  const length = kind === ADDRESS.name ? (await read(1))[0] : kind === ADDRESS.ipv4 ? 4 : 16;
  if (kind !== ADDRESS.name && kind !== ADDRESS.ipv4 && kind !== ADDRESS.ipv6) throw fail("proxy_protocol", NO_SOCKS);
  await read((length ?? 0) + 2);
}

/** RFC 1928 §4. */
function connectRequest({ host, port }: Target): Buffer {
  const family = isIP(host);
  const address = family === 0 ? Buffer.from(host) : addressBytes(host);
  const kind = family === 0 ? [ADDRESS.name, address.length] : [family === 4 ? ADDRESS.ipv4 : ADDRESS.ipv6];
  return Buffer.concat([
    Buffer.from([VERSION, COMMAND_CONNECT, 0, ...kind]),
    address,
    Buffer.from([port >>> 8, port & 0xff]),
  ]);
}

/** With `socks5` the name is resolved here, to one address; IPv4 is preferred, because more proxies can reach it. */
async function resolve(to: Target, signal: AbortSignal): Promise<Target> {
  if (isIP(to.host) !== 0) return to;
  try {
    signal.throwIfAborted();
    const found = await untilAborted(NAMES.find(to.host), signal);
    const { address } = found.find(({ family }) => family === 4) ?? found[0] ?? { address: to.host };
    return { host: address, port: to.port };
  } catch (error) {
    if (signal.aborted) throw lookupTimeout(to.host, formatTarget(to));
    throw networkFault(error as NodeJS.ErrnoException, to.host, formatTarget(to));
  }
}

function proxyFault(proxy: ProxyServer, fault: RouteFaultCode, sentence: string): RouteFault {
  const at = formatProxy(proxy);
  return new RouteFault(fault, `the proxy ${at} ${sentence}`, { at });
}

const NO_SOCKS = "does not speak SOCKS 5: check scheme and port of the proxy";
const NEEDS_CREDENTIALS = "wants a user and password: put them in its URL or in --proxy-credentials-file";
const TAKES_NO_PASSWORD =
  "takes neither the user and password of its URL or of --proxy-credentials-file nor a connection without (RFC 1928 §3): ask its administrators for a way in by a password (RFC 1929), GSS-API is not spoken here";

type ReplySentence = (to: string) => string;
const saysNoMore: ReplySentence = (to) => `opens no connection to ${to} and says no more: its log may`;
const isNotAllowed: ReplySentence = (to) =>
  `does not allow connections to ${to}: ask its administrators to allow this destination`;
const cannotReach: ReplySentence = (to) =>
  `says that it cannot reach ${to}: check its name and port as the proxy sees them`;
const connectsNowhere: ReplySentence = (to) => `makes no outgoing connections, such as that to ${to}`;
const needsOtherAddress: ReplySentence = (to) =>
  `does not take ${to}: a name is resolved here with socks5://, and by the proxy with socks5h://`;

/** The refusals of a proxy, by their number, with their names in RFC 1928 §6. */
const REPLIES = new Map<number, readonly [fault: RouteFaultCode, name: string, sentence: ReplySentence]>([
  [1, ["proxy_unavailable", "general SOCKS server failure", saysNoMore]],
  [2, ["proxy_forbidden", "not allowed by ruleset", isNotAllowed]],
  [3, ["proxy_unavailable", "network unreachable", cannotReach]],
  [4, ["proxy_unavailable", "host unreachable", cannotReach]],
  [5, ["proxy_unavailable", "connection refused", cannotReach]],
  [6, ["proxy_unavailable", "TTL expired", cannotReach]],
  [7, ["proxy_protocol", "command not supported", connectsNowhere]],
  [8, ["proxy_unavailable", "address type not supported", needsOtherAddress]],
]);
