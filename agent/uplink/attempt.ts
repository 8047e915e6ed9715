import type { SecureVersion } from "node:tls";
import type { Hello, Welcome } from "../../shared/link/control.ts";
import { dialLink } from "../../shared/link/dial.ts";
import type { Link } from "../../shared/link/link.ts";
import { GoAwayCode } from "../../shared/yamux/frame.ts";
import type { SessionOptions } from "../../shared/yamux/options.ts";
import { Session, type SessionHandler } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerLocation } from "../server-url.ts";
import { type CredentialFiles, readCredentials } from "./credentials.ts";

/** Who is told what becomes of a connection. */
export interface ConnectionOwner {
  onStream(stream: Stream): void;
  /** The server takes no new streams here any more. `retryAfterMs`: come back to it after so long. */
  onDrain(connection: Connection, retryAfterMs: number): void;
  onClosed(connection: Connection, reason: Error | undefined): void;
}

export interface AttemptOptions {
  readonly server: ServerLocation;
  readonly credentials: CredentialFiles;
  readonly tls: { readonly minVersion: SecureVersion; readonly ciphers: string };
  readonly hello: Hello;
  readonly timeoutMs: number;
  readonly keepaliveMs: number;
  readonly session: Pick<SessionOptions, "maxWindow" | "budget" | "maxStreams">;
}

/** One try of an uplink: credentials, TCP → TLS → upgrade → hello → welcome, session. */
export async function attempt(
  options: AttemptOptions,
  owner: ConnectionOwner,
  signal: AbortSignal,
): Promise<Connection> {
  const { ca, cert, key } = readCredentials(options.credentials);
  const { minVersion, ciphers } = options.tls;
  const { server, hello, timeoutMs, keepaliveMs } = options;
  const { link, welcome } = await dialLink({
    host: server.host,
    port: server.port,
    path: server.path,
    ...(server.address === undefined ? {} : { address: server.address }),
    tls: { ca, cert, key, minVersion, ...(ciphers === "" ? {} : { ciphers }) },
    hello,
    timeoutMs,
    keepaliveMs,
    signal,
  });
  return new Connection(link, welcome, owner, options.session);
}

/** How long the last bytes to a server that is being left may take, ms; nobody waits for them. */
const LAST_BYTES_MS = 10_000;

/** What a connection needs of its link. */
export type UplinkLink = Pick<Link, keyof Transport | "id" | "remote" | "onControl">;

/** A link and the session on it, as long as both last. */
export class Connection implements SessionHandler {
  readonly link: Pick<Link, "id" | "remote">;
  readonly welcome: Welcome;
  readonly session: Session;
  readonly #owner: ConnectionOwner;
  #endedBy: Error | undefined;
  #left = false;

  constructor(link: UplinkLink, welcome: Welcome, owner: ConnectionOwner, options: AttemptOptions["session"]) {
    this.link = link;
    this.welcome = welcome;
    this.#owner = owner;
    link.onControl = (message) => {
      if (message.type === "drain") owner.onDrain(this, message.retryAfterMs);
    };
    this.session = new Session("client", link, this, {
      ...options,
      initialWindow: welcome.initialWindow,
      maxWindow: Math.max(options.maxWindow, welcome.initialWindow),
    });
  }

  /** Why the session ended, for one that ended before anybody could be told. */
  get endedBy(): Error | undefined {
    return this.#endedBy;
  }

  /** Ends when the streams that are open have ended, however long they take: their server has a deadline of its own. */
  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.session.drain();
    let open = 1;
    const onStreamClosed = (): void => {
      open--;
      if (open === 0) void this.session.close(LAST_BYTES_MS);
    };
    for (const stream of this.session.streams()) {
      open++;
      stream.once("close", onStreamClosed);
    }
    onStreamClosed();
  }

  onStream(stream: Stream): void {
    this.#owner.onStream(stream);
  }

  /** Any other code than "normal" is an end, with blame: nothing on this session goes on. */
  onGoAway(code: number): void {
    if (code === GoAwayCode.normal) this.#owner.onDrain(this, 0);
    else this.session.destroy(new Error(`the server gave the session up: it found a fault (go-away ${code})`));
  }

  onClosed(reason: Error | undefined): void {
    this.#endedBy = reason;
    this.#owner.onClosed(this, reason);
  }
}
