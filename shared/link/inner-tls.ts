import { constants } from "node:crypto";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import { sniOf } from "../address/server-name.ts";
import { getOrMake } from "../basics/collections.ts";
import { type Deferred, deferred } from "../basics/promises.ts";
import { type DialFault, isUnknownIssuer } from "../faults/faults.ts";
import { type HandshakeSource, WastedBytes } from "../listen/handshake-budget.ts";
import { TLS_FLOOD, TlsOverhead } from "../listen/tls-overhead.ts";
import { streamBeneath, tlsServerOn } from "../node/sockets.ts";
import { trustIn } from "../tls/authorities.ts";
import { isHarmless } from "../tls/identity.ts";
import { KEY_EXCHANGE } from "../tls/key-exchange.ts";
import { certificateFault, innerCaWords, shownBy } from "../tls/server-certificate.ts";
import type { TlsMaterial } from "../tls/tls-material.ts";
import type { LinkCarrier } from "./carrier.ts";
import { type InnerLink, InnerPipe, LinkDuplex, PUBLIC_REASON } from "./inner-pipe.ts";
import { Link, type LinkOptions } from "./link.ts";
import { type LinkWatcher, PeerViolation } from "./link-events.ts";
import { LinkKey } from "./proof.ts";

/**
 * The protocol name (ALPN, RFC 7301) of inner TLS: TLS 1.3 over a link whose outer TLS a middlebox may end
 * (docs/link-protocol.md). Both ends use the same certificates inside and outside. An outer handshake cannot be passed
 * off as an inner one, because it names another protocol, and the inner server accepts only this one.
 */
const INNER_PROTOCOL = "culvert-inner/1";

/** Maximum bytes that an unauthenticated peer sends on a carrier: enough for two chains, a token and the hello. */
const MAX_ANONYMOUS_BYTES = 32 * 1024;

/** The reason for ending a handshake at its deadline. */
export const TOO_LONG = "the inner TLS handshake took too long";

/** Inner TLS after its handshake. */
export interface InnerTls {
  readonly socket: tls.TLSSocket;
  /** The CA (PEM) by which the peer's certificate was verified; absent: Node's own. */
  readonly verifiedBy: string | undefined;
  readonly pipe: InnerPipe;
  /** The key that proves resumes of the link. */
  readonly key: LinkKey;
}

export interface InnerDialOptions {
  /** The server's name, for SNI and verification. */
  readonly host: string;
  readonly tls: Pick<tls.ConnectionOptions, "cert" | "key"> & { readonly ca?: string | undefined };
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The inner TLS handshake failed at the agent. */
export class InnerTlsFault extends Error {
  override readonly name = "InnerTlsFault";
  /** The fault of the server's certificate; absent if something else is wrong. */
  readonly fault: DialFault | undefined;
  /** The server's certificate chain, from the leaf upwards (DER). */
  readonly shown: readonly Buffer[];

  constructor(cause: NodeJS.ErrnoException, shown: readonly Buffer[], { host, tls: { ca } }: InnerDialOptions) {
    const fault = certificateFault(cause, shown, { host, ca, isMiddleboxLikely: false });
    const sentence = isUnknownIssuer(fault) ? innerCaWords(fault.facts) : (fault ?? cause).message;
    super(`inner TLS: ${sentence}`, { cause });
    this.fault = fault;
    this.shown = shown;
  }
}

/** A fault of the peer or the network: the link ended before the handshake was done, or the handshake failed. */
export class PeerFault extends Error {
  override readonly name = "PeerFault";

  constructor(cause: Error) {
    super(cause.message, { cause });
  }
}

/** Begins inner TLS at the agent. If it fails, ends the link and rejects with what ended the link or the handshake. */
export async function dialInner(link: InnerLink, options: InnerDialOptions): Promise<InnerTls> {
  return await orEnded(link, () => dial(link, options));
}

async function dial(link: InnerLink, options: InnerDialOptions): Promise<InnerTls> {
  const { host } = options;
  const bottom = new LinkDuplex(link, MAX_ANONYMOUS_BYTES);
  const socket = tls.connect({
    ...options.tls,
    ...trustIn(options.tls.ca),
    socket: bottom,
    host,
    ...sniOf(host),
    minVersion: "TLSv1.3",
    rejectUnauthorized: true,
    ALPNProtocols: [INNER_PROTOCOL],
  });
  const secured = new Promise<void>((resolve, reject) => {
    const shown = shownBy(socket);
    socket.on("error", (error) => reject(new InnerTlsFault(error, shown(), options)));
    socket.once("secureConnect", resolve);
  });
  await handshake(secured, bottom, options.timeoutMs, options.signal);
  return found(link, bottom, socket, options.tls.ca);
}

/**
 * Accepts inner TLS at the server. There is one TLS server for each material, which never listens, and not one for each
 * peer, because making a context takes several times as long as a handshake. `verifyPeer` verifies the client's
 * certificate later.
 */
export class InnerServers {
  readonly #servers = new WeakMap<TlsMaterial, tls.Server>();
  /** The handshakes in progress, by the stream that each one uses. */
  readonly #handshakes = new WeakMap<Duplex, InnerHandshake>();
  readonly #wasted = new WastedBytes();
  readonly #overhead = new TlsOverhead();

  /** Waits for the handshake. Ends the link and rejects with a `PeerFault`, or an error of this server, if it fails. */
  async accept(link: InnerLink, material: TlsMaterial, timeoutMs: number, source: HandshakeSource): Promise<InnerTls> {
    return await orEnded(link, () => this.#accept(link, material, timeoutMs, source));
  }

  async #accept(link: InnerLink, material: TlsMaterial, timeoutMs: number, source: HandshakeSource): Promise<InnerTls> {
    const server = getOrMake(this.#servers, material, () => this.#makeServer(material));
    const secured = deferred<tls.TLSSocket>();
    const inProgress: InnerHandshake = { secured, source, charged: 0, isOver: false };
    const bottom = new LinkDuplex(link, MAX_ANONYMOUS_BYTES, (byteLength) => this.#mayReceive(inProgress, byteLength));
    this.#handshakes.set(bottom, inProgress);
    server.emit("connection", bottom);
    const socket = await handshake(secured.promise, bottom, timeoutMs).catch((error: Error) => {
      throw new PeerFault(error);
    });
    const inner = found(link, bottom, socket, material.ca);
    const unwatch = this.#overhead.watch(bottom, socket, () => link.destroy(new PeerViolation(TLS_FLOOD), TLS_FLOOD));
    void bottom.over.then(unwatch);
    return inner;
  }

  #makeServer(material: TlsMaterial): tls.Server {
    const server = serverOf(material);
    server.on("secureConnection", (socket) => {
      this.#handshakeOn(socket, isHarmless(socket, material.ca))?.resolve(socket);
    });
    server.on("tlsClientError", (error, socket) => {
      this.#handshakeOn(socket, false)?.reject(new Error(`inner TLS: ${error.message}`, { cause: error }));
    });
    return server;
  }

  /** Counts bytes after the ClientHello before TLS reads them: a certificate is verified as soon as it is read. */
  #mayReceive(handshake: InnerHandshake, byteLength: number): boolean {
    if (handshake.isOver) return true;
    if (this.#wasted.owes(handshake.source)) return false;
    handshake.charged += byteLength;
    this.#wasted.charge(handshake.source, byteLength);
    return true;
  }

  /** Finds the handshake that has ended on this socket. A harmless handshake no longer counts. */
  #handshakeOn(socket: tls.TLSSocket, wasHarmless: boolean): Deferred<tls.TLSSocket> | undefined {
    const beneath = streamBeneath(socket);
    const handshake = beneath && this.#handshakes.get(beneath);
    if (handshake === undefined) return undefined;
    handshake.isOver = true;
    if (wasHarmless) this.#wasted.charge(handshake.source, -handshake.charged);
    return handshake.secured;
  }
}

/** A handshake in progress. */
interface InnerHandshake {
  readonly secured: Deferred<tls.TLSSocket>;
  readonly source: HandshakeSource;
  /** Bytes counted as wasted until it has succeeded. */
  charged: number;
  isOver: boolean;
}

function serverOf({ cert, key, ca }: TlsMaterial): tls.Server {
  const context = tls.createSecureContext({
    cert,
    key,
    ...trustIn(ca),
    minVersion: "TLSv1.3",
    ecdhCurve: KEY_EXCHANGE,
    secureOptions: constants.SSL_OP_NO_TICKET, // a resumed TLS session would skip the certificate
  });
  return tlsServerOn(context, {
    requestCert: true,
    rejectUnauthorized: false, // `verifyPeer` refuses later, with a sentence
    ALPNProtocols: [INNER_PROTOCOL],
  });
}

function found(link: InnerLink, bottom: LinkDuplex, socket: tls.TLSSocket, verifiedBy: string | undefined): InnerTls {
  if (socket.alpnProtocol !== INNER_PROTOCOL) {
    throw new PeerFault(new Error("inner TLS: the peer does not speak its protocol"));
  }
  return { socket, verifiedBy, pipe: new InnerPipe(link, bottom, socket), key: LinkKey.of(socket) };
}

/** Runs `step`, and ends the link if it fails, also before TLS has begun. */
async function orEnded<T>(link: InnerLink, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    link.destroy(error as Error, PUBLIC_REASON);
    throw error;
  }
}

/** Waits for the handshake. If the link has ended, rejects with the reason for that, which says more than TLS does. */
async function handshake<T>(
  secured: Promise<T>,
  bottom: LinkDuplex,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<T> {
  const timer = setTimeout(() => bottom.destroy(new Error(TOO_LONG)), timeoutMs);
  const onAbort = (): void => void bottom.destroy(new Error("the attempt was cancelled"));
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  const over = bottom.over.then((reason) => {
    throw reason ?? new Error("the peer closed inside the inner TLS handshake");
  });
  try {
    return await Promise.race([secured, over]);
  } catch (error) {
    bottom.destroy(error as Error);
    throw bottom.endedBy ?? error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    over.catch(() => {}); // a later end is not an error of the handshake
  }
}

// ── the link below ─────────────────────────────────────────────────────────────────────────────────────────────────

/** Minimum time between two `rotate` or two `servers` messages of a peer, ms: the agent dials for each of them. */
const REQUEST_EVERY_MS = 5_000;

/** Delivers one message in each `everyMs`. Of messages that come earlier only the last is delivered, and later. */
class Paced {
  readonly #everyMs: number;
  #deliveredAt = Number.NEGATIVE_INFINITY;
  #later: NodeJS.Timeout | undefined;

  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  offer(deliver: () => void): void {
    this.stop();
    const waitMs = this.#deliveredAt + this.#everyMs - performance.now();
    if (waitMs > 0) {
      this.#later = setTimeout(() => this.offer(deliver), waitMs).unref();
      return;
    }
    this.#deliveredAt = performance.now();
    deliver();
  }

  stop(): void {
    clearTimeout(this.#later);
  }
}

/**
 * A link below inner TLS, whose carriers a middlebox may read and change. Inner TLS protects the payload. With pings,
 * acks and closes a middlebox can do no more than by delaying or cutting the connection. Other messages are ignored,
 * except `rotate` and `servers`, whose rate is bounded. The session's go-away, inside inner TLS, replaces `drain`.
 *
 * Until `assignId` the link has no id, and ends with its carrier.
 */
export class UntrustedLink extends Link {
  readonly #rotate: Paced;
  readonly #servers: Paced;

  constructor(
    remote: string,
    carrier: LinkCarrier,
    options: Omit<LinkOptions, "graceMs">,
    requestEveryMs = REQUEST_EVERY_MS,
  ) {
    super("", remote, carrier, { ...options, graceMs: 0 });
    this.#rotate = new Paced(requestEveryMs);
    this.#servers = new Paced(requestEveryMs);
  }

  /** Gives the link its id when both ends are authenticated. From now on it may outlive its carrier. */
  assignId(id: string, graceMs: number): void {
    this.id = id;
    this.graceMs = graceMs;
  }

  override watch(watcher: LinkWatcher): void {
    super.watch({
      ...watcher,
      onControl: (message) => {
        if (message.type === "rotate") this.#rotate.offer(() => watcher.onControl?.(message));
        else if (message.type === "servers") this.#servers.offer(() => watcher.onControl?.(message));
      },
      onClosed: () => {
        this.#rotate.stop();
        this.#servers.stop();
        watcher.onClosed?.();
      },
    });
  }
}
