import { constants } from "node:crypto";
import net from "node:net";
import tls from "node:tls";
import { tellJudgedBy } from "../net/tls.ts";
import type { TlsMaterial } from "../net/tls-material.ts";
import { type InnerLink, InnerPipe, LinkDuplex } from "./inner-pipe.ts";
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
  readonly pipe: InnerPipe;
  /** Gives the link its later carriers. */
  readonly key: LinkKey;
}

export interface InnerDialOptions {
  /** The server's name, for SNI and verification. */
  readonly host: string;
  readonly tls: Pick<tls.ConnectionOptions, "ca" | "cert" | "key">;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** The agent's side. Rejects with what ended the link, or with what TLS has found; the link is over then. */
export async function dialInner(link: InnerLink, options: InnerDialOptions): Promise<InnerTls> {
  const { host } = options;
  const bottom = new LinkDuplex(link, MAX_ANONYMOUS_BYTES);
  const socket = tls.connect({
    ...options.tls,
    socket: bottom,
    host,
    ...(net.isIP(host) === 0 ? { servername: host } : {}),
    minVersion: "TLSv1.3",
    rejectUnauthorized: true,
    ALPNProtocols: [INNER_PROTOCOL],
  });
  const secured = new Promise<void>((resolve, reject) => {
    socket.on("error", (error) => reject(new Error(`inner TLS: ${error.message}`, { cause: error })));
    socket.once("secureConnect", resolve);
  });
  await handshake(secured, bottom, options.timeoutMs, options.signal);
  return found(link, bottom, socket);
}

/** The server's side: TLS servers that never listen, one for each material. Their clients are judged by `judgePeer`. */
export class InnerServers {
  readonly #servers = new WeakMap<TlsMaterial, tls.Server>();
  readonly #waiting = new WeakMap<object, Waiting>();

  /** Rejects with what ended the link, or with what TLS has found; the link is over then. */
  async accept(link: InnerLink, material: TlsMaterial, timeoutMs: number): Promise<InnerTls> {
    const bottom = new LinkDuplex(link, MAX_ANONYMOUS_BYTES);
    const { ca } = material;
    let socket: tls.TLSSocket | undefined;
    const secured = new Promise<void>((resolve, reject) => {
      const onSecure = (secure: tls.TLSSocket) => {
        socket = secure;
        tellJudgedBy(secure, ca);
        resolve();
      };
      this.#waiting.set(bottom, { onSecure, onFailed: reject });
      this.#serverOf(material).emit("connection", bottom);
    });
    await handshake(secured, bottom, timeoutMs);
    return found(link, bottom, socket as tls.TLSSocket);
  }

  #serverOf(material: TlsMaterial): tls.Server {
    const known = this.#servers.get(material);
    if (known !== undefined) return known;
    const { cert, key, ca } = material;
    const made = tls.createServer({
      ...{ cert, key },
      ca: ca === "" ? [] : ca, // left out, it would be the system's
      minVersion: "TLSv1.3",
      requestCert: true,
      rejectUnauthorized: false, // `judgePeer` says why, in words
      ALPNProtocols: [INNER_PROTOCOL],
      secureOptions: constants.SSL_OP_NO_TICKET, // a resumed session would skip the certificate
    });
    made.on("secureConnection", (socket) => {
      const waiting = this.#waitingFor(socket);
      if (waiting === undefined) socket.destroy();
      else waiting.onSecure(socket);
    });
    made.on("tlsClientError", (error, socket) => {
      this.#waitingFor(socket)?.onFailed(new Error(`inner TLS: ${error.message}`, { cause: error }));
    });
    this.#servers.set(material, made);
    return made;
  }

  #waitingFor(socket: tls.TLSSocket): Waiting | undefined {
    const bottom = beneath(socket);
    return bottom && this.#waiting.get(bottom);
  }
}

interface Waiting {
  onSecure(socket: tls.TLSSocket): void;
  onFailed(error: Error): void;
}

/** What a TLS server was given: undocumented, but where Node keeps the Duplex beneath, in a wrapping of its own. */
function beneath(socket: tls.TLSSocket): object | undefined {
  return property(property(property(socket, "_handle"), "_parentWrap"), "stream");
}

function property(of: object | undefined, name: string): object | undefined {
  const value: unknown = of === undefined ? undefined : Reflect.get(of, name);
  return typeof value === "object" && value !== null ? value : undefined;
}

function found(link: InnerLink, bottom: LinkDuplex, socket: tls.TLSSocket): InnerTls {
  if (socket.alpnProtocol !== INNER_PROTOCOL) {
    const error = new Error("inner TLS: the peer does not speak its protocol");
    bottom.destroy(error);
    throw error;
  }
  return { socket, pipe: new InnerPipe(link, bottom, socket), key: LinkKey.of(socket) };
}

/** What ends the link says more than what TLS makes of it. */
async function handshake(
  secured: Promise<void>,
  bottom: LinkDuplex,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<void> {
  const timer = setTimeout(() => bottom.destroy(new Error("the inner TLS handshake took too long")), timeoutMs);
  const onAbort = (): void => void bottom.destroy(new Error("the attempt was cancelled"));
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  const over = bottom.over.then((reason) => {
    throw reason ?? new Error("the peer closed inside the inner TLS handshake");
  });
  try {
    await Promise.race([secured, over]);
  } catch (error) {
    bottom.destroy(error as Error);
    throw bottom.endedBy ?? error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    over.catch(() => {}); // its end is nothing to the handshake any more
  }
}
