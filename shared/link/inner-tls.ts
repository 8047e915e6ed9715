import { constants } from "node:crypto";
import tls from "node:tls";
import { sniOf } from "../address/server-name.ts";
import { type DialFault, isUnknownIssuer } from "../faults/faults.ts";
import { beforeVerification } from "../node/sockets.ts";
import { certificateFault, innerCaWords, shownBy } from "../tls/server-certificate.ts";
import type { TlsMaterial } from "../tls/tls-material.ts";
import { type InnerLink, InnerPipe, LinkDuplex, TOLD } from "./inner-pipe.ts";
import { LinkKey } from "./proof.ts";

/**
 * TLS 1.3 over a link, where somebody in between opens the TLS of its carriers (design: "Layers"). The certificates are
 * those that would be shown outside. Neither handshake can be passed off as the other: they name different protocols
 * (RFC 7301), and the inner server takes nothing but its own.
 */
const INNER_PROTOCOL = "culvert-inner/1";

/** All that may arrive on a carrier of which nobody knows whose it is: two chains, a token and the hello fit. */
const MAX_ANONYMOUS_BYTES = 32 * 1024;

/** The two ends know each other, as far as TLS can tell. */
export interface InnerTls {
  readonly socket: tls.TLSSocket;
  /** The CA (PEM) by which the peer's certificate was verified; absent: Node's own. */
  readonly verifiedBy: string | undefined;
  readonly pipe: InnerPipe;
  /** Gives the link its later carriers. */
  readonly key: LinkKey;
}

export interface InnerDialOptions {
  /** The server's name, for SNI and verification. */
  readonly host: string;
  readonly tls: Pick<tls.ConnectionOptions, "cert" | "key"> & { readonly ca?: string | undefined };
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What TLS has found inside. */
export class InnerTlsFault extends Error {
  override readonly name = "InnerTlsFault";
  /** What is wrong with the certificate that was shown; absent: it is something else. */
  readonly fault: DialFault | undefined;
  /** From the server's certificate upwards (DER). */
  readonly shown: readonly Buffer[];

  constructor(cause: NodeJS.ErrnoException, shown: readonly Buffer[], { host, tls: { ca } }: InnerDialOptions) {
    const fault = certificateFault(cause, shown, { host, ca, isMiddleboxLikely: false });
    const words = isUnknownIssuer(fault) ? innerCaWords(fault.facts) : (fault ?? cause).message;
    super(`inner TLS: ${words}`, { cause });
    this.fault = fault;
    this.shown = shown;
  }
}

/** What the peer has done, or the network: the link has ended too soon, or TLS has found something. */
export class PeerFault extends Error {
  override readonly name = "PeerFault";

  constructor(cause: Error) {
    super(cause.message, { cause });
  }
}

/** The agent's side. Rejects with what ended the link, or with what TLS has found; the link is over then. */
export async function dialInner(link: InnerLink, options: InnerDialOptions): Promise<InnerTls> {
  return await orEnded(link, () => dial(link, options));
}

async function dial(link: InnerLink, options: InnerDialOptions): Promise<InnerTls> {
  const { host } = options;
  const bottom = new LinkDuplex(link, MAX_ANONYMOUS_BYTES);
  const socket = tls.connect({
    ...options.tls,
    socket: bottom,
    host,
    ...sniOf(host),
    minVersion: "TLSv1.3",
    rejectUnauthorized: true,
    ALPNProtocols: [INNER_PROTOCOL],
  });
  const secured = new Promise<void>((resolve, reject) => {
    let shown: readonly Buffer[] = [];
    beforeVerification(socket, () => {
      shown = shownBy(socket);
    });
    socket.on("error", (error) => reject(new InnerTlsFault(error, shown, options)));
    socket.once("secureConnect", resolve);
  });
  await handshake(secured, bottom, options.timeoutMs, options.signal);
  return found(link, bottom, socket, options.tls.ca);
}

/** TLS servers without a handshake that are kept, of one material: one costs as much as a few handshakes. */
const MAX_IDLE = 8;

/**
 * The server's side: TLS servers that never listen. Each has one handshake at a time, so that there is no doubt whose the
 * connection is that it finds secure. Clients are judged by `verifyPeer`.
 */
export class InnerServers {
  readonly #idle = new WeakMap<TlsMaterial, tls.Server[]>();

  /** Rejects with a `PeerFault`, or with a fault of our own; the link is over then. */
  async accept(link: InnerLink, material: TlsMaterial, timeoutMs: number): Promise<InnerTls> {
    return await orEnded(link, () => this.#accept(link, material, timeoutMs));
  }

  async #accept(link: InnerLink, material: TlsMaterial, timeoutMs: number): Promise<InnerTls> {
    const server = this.#idle.get(material)?.pop() ?? serverOf(material);
    const bottom = new LinkDuplex(link, MAX_ANONYMOUS_BYTES);
    const secured = new Promise<tls.TLSSocket>((resolve, reject) => {
      server.once("secureConnection", resolve);
      server.once("tlsClientError", (error) => reject(new Error(`inner TLS: ${error.message}`, { cause: error })));
    });
    server.emit("connection", bottom);
    const socket = await handshake(secured, bottom, timeoutMs).catch((error: Error) => {
      throw new PeerFault(error);
    });
    this.#keep(server, material); // one whose handshake has failed is not used again: its end may be yet to come
    return found(link, bottom, socket, material.ca);
  }

  #keep(server: tls.Server, material: TlsMaterial): void {
    server.removeAllListeners("tlsClientError");
    const idle = this.#idle.get(material) ?? [];
    if (idle.length < MAX_IDLE) idle.push(server);
    this.#idle.set(material, idle);
  }
}

function serverOf({ cert, key, ca }: TlsMaterial): tls.Server {
  return tls.createServer({
    ...{ cert, key },
    ca: ca === "" ? [] : ca, // left out, it would be the system's
    minVersion: "TLSv1.3",
    requestCert: true,
    rejectUnauthorized: false, // `verifyPeer` says why, in words
    ALPNProtocols: [INNER_PROTOCOL],
    secureOptions: constants.SSL_OP_NO_TICKET, // a resumed session would skip the certificate
  });
}

function found(link: InnerLink, bottom: LinkDuplex, socket: tls.TLSSocket, verifiedBy: string | undefined): InnerTls {
  if (socket.alpnProtocol !== INNER_PROTOCOL) {
    throw new PeerFault(new Error("inner TLS: the peer does not speak its protocol"));
  }
  return { socket, verifiedBy, pipe: new InnerPipe(link, bottom, socket), key: LinkKey.of(socket) };
}

/** Whatever goes wrong, also before TLS has begun, leaves no link behind. */
async function orEnded<T>(link: InnerLink, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    link.destroy(error as Error, TOLD);
    throw error;
  }
}

/** What ends the link says more than what TLS makes of it. */
async function handshake<T>(
  secured: Promise<T>,
  bottom: LinkDuplex,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<T> {
  const timer = setTimeout(() => bottom.destroy(new Error("the inner TLS handshake took too long")), timeoutMs);
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
    over.catch(() => {}); // its end is nothing to the handshake any more
  }
}
