import type { Socket } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import { untilAborted } from "../basics/promises.ts";
import { printable } from "../outcomes.ts";
import { Authentication, AuthenticationFailed } from "./auth/authentication.ts";
import { importKerberos, type LoadKerberos } from "./auth/kerberos.ts";
import type { KerberosTickets } from "./auth/kerberos-tickets.ts";
import type { Authorization } from "./auth/scheme.ts";
import { type AnswerHead, UnreadableAnswer } from "./connect-answer.ts";
import { asksForLogin, authenticationFault, type RefusedConnect, refusal } from "./connect-refusal.ts";
import { dialTcp } from "./dial-tcp.ts";
import { KdcTimeout, RouteFault, type RouteFaultCode } from "./fault.ts";
import { ProxyConnection } from "./http-proxy-connection.ts";
import { formatProxy, type LoginObserver, type ProxyCredentials, type ProxyServer } from "./proxy-route.ts";
import { isTlsError, type ProxyTls, secureProxy, tlsFault } from "./proxy-tls.ts";

export interface ProxyOptions {
  /** Asked once in an attempt, when the proxy wants to know: what comes is sent to it. May reject with a `RouteFault`. */
  readonly credentials: () => Promise<ProxyCredentials | undefined>;
  /** See `ProxyRoute`; `credentials` gives what may be sent all the same. */
  readonly isNamedInClear?: boolean | undefined;
  readonly showing?: LoginObserver | undefined;
  /** For `https://` proxies. */
  readonly tls?: ProxyTls | undefined;
  /** Kerberos, if wanted: it is tried where the proxy offers Negotiate, and passed over where there is no ticket. */
  readonly negotiate?: KerberosTickets | undefined;
  /** The proxy has taken us in by this scheme, of those that it offers. */
  readonly onAuthenticated?: ((scheme: string, offered: string) => void) | undefined;
  /** Something a person should know and need not mend; the same each time. */
  readonly onNote?: ((note: string) => void) | undefined;
}

/** Requests of one attempt: one that is refused, one that answers, and one more for a stale nonce or a second token. */
const MAX_LEGS = 3;
const NO_TICKET = "because Kerberos gave no ticket: check that its KDC can be reached";
/** With words of others in it. */
const MAX_SENTENCE = 400;

/**
 * A connection to `to` through an `http://` or `https://` proxy, by CONNECT (RFC 9110 §9.3.6). It has an error listener and
 * is paused, with all that came behind the proxy's answer still in it; a `TLSSocket` for an `https://` proxy.
 *
 * Rejects with `RouteFault`. An abort destroys whatever is open.
 */
export async function openThroughProxy(
  proxy: ProxyServer,
  to: Target,
  options: ProxyOptions,
  signal: AbortSignal,
  loadKerberos: LoadKerberos = importKerberos,
): Promise<Socket> {
  const attempt = new ConnectAttempt(proxy, to, options, signal, loadKerberos);
  try {
    return await attempt.open();
  } catch (error) {
    attempt.abandon();
    throw attempt.explain(error);
  } finally {
    attempt.settle();
  }
}

/** One try: legs of CONNECT, on one connection as long as the proxy keeps it. */
class ConnectAttempt {
  readonly #proxy: ProxyServer;
  readonly #options: ProxyOptions;
  readonly #signal: AbortSignal;
  readonly #at: string;
  readonly #authority: string;
  readonly #authentication: Authentication;
  /** As the end of "took too long". */
  #step = "";
  /** What the end of this attempt has to destroy. */
  #socket: Socket | undefined;
  #connection!: ProxyConnection;
  #authorization: Authorization | undefined;
  #password = "";

  constructor(proxy: ProxyServer, to: Target, options: ProxyOptions, signal: AbortSignal, loadKerberos: LoadKerberos) {
    this.#proxy = proxy;
    this.#options = options;
    this.#signal = signal;
    this.#at = formatProxy(proxy);
    this.#authority = formatTarget(to);
    this.#authentication = new Authentication({
      proxyHost: proxy.host,
      authority: this.#authority,
      credentials: this.#askCredentials,
      isNamedInClear: options.isNamedInClear ?? false,
      negotiate: options.negotiate,
      loadKerberos,
      signal,
    });
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  readonly #onAbort = (): void => this.abandon();

  settle(): void {
    this.#signal.removeEventListener("abort", this.#onAbort);
  }

  abandon(): void {
    this.#socket?.destroy();
  }

  async open(): Promise<Socket> {
    await this.#connect();
    for (let leg = 1; ; leg++) {
      const head = await this.#ask();
      const isOpen = head.status >= 200 && head.status < 300;
      if (!asksForLogin(head.status)) this.#options.showing?.onTaken(isOpen);
      if (isOpen) return this.#accept(head);
      if (head.status !== 407) throw refusal(await this.#refused(head));
      await this.#authorize(head, leg);
      if (!(await this.#connection.passOver(head))) await this.#connect();
    }
  }

  /** The first connection, or another in place of the one there was. */
  async #connect(): Promise<void> {
    this.#socket?.destroy();
    this.#step = "to accept the connection: check its address, and firewalls on the way";
    const raw = await dialTcp(this.#proxy, this.#at, this.#signal);
    this.#hold(raw);
    if (this.#proxy.scheme === "https") {
      this.#step = "in the TLS handshake";
      this.#hold(await secureProxy(raw, this.#proxy, this.#options.tls ?? {}));
    }
  }

  #hold(socket: Socket): void {
    this.#socket = socket;
    this.#connection = new ProxyConnection(socket);
    this.#signal.throwIfAborted();
  }

  /** One leg. */
  async #ask(): Promise<AnswerHead> {
    this.#step = `to answer CONNECT to ${this.#authority}`;
    if (this.#authorization !== undefined && this.#authentication.scheme !== "Negotiate") {
      this.#options.showing?.onShown();
    }
    const answer = await this.#connection.ask(this.#request());
    if (answer.head !== undefined) return answer.head;
    if (isTlsError(answer.error)) throw tlsFault(this.#proxy, answer.error);
    // It gave the connection up before it saw this request, as some do behind each 407, whatever they say.
    if (answer.silent && this.#connection.wasKept && this.#mayRepeat && (await this.#authorizeAgain())) {
      await this.#connect();
      return this.#ask();
    }
    throw this.#fault(
      "proxy_closed",
      `closed the connection and did not answer CONNECT to ${this.#authority}: check that it is an HTTP proxy, and what its log says`,
      answer.error,
    );
  }

  get #mayRepeat(): boolean {
    return this.#options.showing?.mayRepeat() ?? true;
  }

  #request(): string {
    const lines = [
      `CONNECT ${this.#authority} HTTP/1.1`,
      `Host: ${this.#authority}`,
      "User-Agent: culvert",
      // Proxies of old keep a connection for the next leg only for who says so.
      "Proxy-Connection: keep-alive",
      ...(this.#authorization === undefined ? [] : [`Proxy-Authorization: ${this.#authorization.value}`]),
    ];
    return `${lines.join("\r\n")}\r\n\r\n`;
  }

  /** Decides what the next leg says, or that there is none. */
  async #authorize(head: AnswerHead, leg: number): Promise<void> {
    const fields = head.fields.get("proxy-authenticate") ?? [];
    try {
      const authorization = await this.#waitForTicket(() => this.#authentication.answer(fields));
      if (leg === MAX_LEGS || !this.#mayRepeat) throw this.#authentication.endless;
      this.#authorization = authorization;
    } catch (error) {
      if (!(error instanceof AuthenticationFailed)) throw error;
      throw authenticationFault(error, await this.#refused(head));
    }
    if (this.#authentication.scheme === "Basic" && this.#proxy.scheme === "http") {
      this.#options.onNote?.(`the proxy ${this.#at} is sent its password in the clear (Basic, over http://)`);
    }
  }

  /** The same for another connection; `false`: what was said was only for the one that is gone. */
  async #authorizeAgain(): Promise<boolean> {
    const again = await this.#waitForTicket(() => this.#authentication.again());
    if (again !== undefined) this.#authorization = again;
    return again !== undefined;
  }

  async #accept(head: AnswerHead): Promise<Socket> {
    const fields = ["proxy-authenticate", "proxy-authentication-info"].flatMap((name) => head.fields.get(name) ?? []);
    const doubt = await this.#waitForTicket(() => this.#authentication.doubts(fields));
    if (doubt !== undefined) throw this.#fault("proxy_protocol", `does not prove who it is (Negotiate): ${doubt}`);
    const { scheme, offered } = this.#authentication;
    if (scheme !== undefined) this.#options.onAuthenticated?.(scheme, offered);
    return this.#connection.release();
  }

  /** Kerberos asks others, who may be out of reach, and cannot be told to stop. Who is asked for a password says so itself. */
  async #waitForTicket<T>(work: () => Promise<T>): Promise<T> {
    const step = this.#step;
    this.#step = NO_TICKET;
    const done = await untilAborted(work(), this.#signal);
    this.#step = step;
    return done;
  }

  readonly #askCredentials = async (): Promise<ProxyCredentials | undefined> => {
    this.#step = "to judge the user and the password, which another connection of ours has shown it";
    const credentials = await this.#options.credentials();
    this.#password = credentials?.password ?? "";
    return credentials;
  };

  async #refused(head: AnswerHead): Promise<RefusedConnect> {
    return {
      at: this.#at,
      authority: this.#authority,
      head,
      page: await this.#connection.readPage(head),
      secrets: this.#authorization === undefined ? [] : [this.#authorization.secret, this.#password],
    };
  }

  #fault(fault: RouteFaultCode, what: string, cause?: unknown): RouteFault {
    return new RouteFault(fault, `the proxy ${this.#at} ${printable(what, MAX_SENTENCE)}`, { at: this.#at, cause });
  }

  explain(error: unknown): unknown {
    if (this.#signal.aborted) {
      const message = `the proxy ${this.#at} took too long ${this.#step}`;
      const Late = this.#step === NO_TICKET ? KdcTimeout : RouteFault;
      return new Late("timeout", message, { at: this.#at, cause: this.#signal.reason });
    }
    if (error instanceof AuthenticationFailed)
      return this.#fault(`proxy_auth_${error.why}`, error.message, error.cause);
    return error instanceof UnreadableAnswer ? this.#fault("proxy_protocol", error.message, error) : error;
  }
}
