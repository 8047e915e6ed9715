import { addAbortListener } from "node:events";
import type { Socket } from "node:net";
import { formatTarget, type Target } from "../address/target.ts";
import { untilAborted } from "../basics/promises.ts";
import { revealsSecret } from "../basics/text.ts";
import { parseRetryAfter, printableLocation } from "../http/response-fields.ts";
import { printable } from "../outcomes.ts";
import { Authentication, AuthenticationFailed } from "./auth/authentication.ts";
import { importKerberos, type KerberosTickets, type LoadKerberos } from "./auth/kerberos.ts";
import type { Authorization, ProxyCredentials } from "./auth/scheme.ts";
import { type AnswerHead, UnreadableAnswer } from "./connect-answer.ts";
import { dialTcp } from "./dial-tcp.ts";
import { isTlsError, ProxyConnection, type ProxyTls, secureProxy, tlsFault } from "./http-proxy-connection.ts";
import type { ProxyLogin } from "./proxy-credentials.ts";
import { formatProxy, KdcTimeout, type ProxyServer, RouteFault, type RouteFaultCode } from "./proxy-route.ts";

export interface ProxyOptions extends ProxyLogin {
  /** For `https://` proxies. */
  readonly tls?: ProxyTls | undefined;
  /** Kerberos, if it is used. It is tried where the proxy offers Negotiate, and skipped without a ticket. */
  readonly tickets?: KerberosTickets | undefined;
  /** The proxy has accepted an authorization of this scheme; `offered` names all schemes that it offered. */
  readonly onAuthenticated?: ((scheme: string, offered: string) => void) | undefined;
  /** Called with something that an operator should know and need not change. */
  readonly onNote?: ((note: string) => void) | undefined;
}

/** Requests of one attempt: without authorization, with it, and one for a stale nonce or a second token. */
const MAX_REQUESTS = 3;
const NOT_ASKED = "; the password was not asked for";
const WITHHELD_UNASKED = `${NOT_ASKED}, and is withheld (a PAC script without TLS named it)`;
const WAITING_FOR_TICKET = "because Kerberos gave no ticket: check that its KDC can be reached";
/** Maximum length of a sentence that contains text of the proxy or a library. */
const MAX_SENTENCE = 400;
/** Maximum length of a sentence that contains the message of a Kerberos library. */
const MAX_CAUSE = 800;

/**
 * A connection to `to` through an `http://` or `https://` proxy, by CONNECT (RFC 9110 §9.3.6). It has an error
 * listener, is paused, and still holds the bytes after the proxy's answer. For an `https://` proxy it is a `TLSSocket`.
 * Rejects with a `RouteFault`. An abort destroys the connection.
 */
export async function openThroughProxy(
  proxy: ProxyServer,
  to: Target,
  options: ProxyOptions,
  signal: AbortSignal,
  loadKerberos: LoadKerberos = importKerberos,
): Promise<Socket> {
  const attempt = new ConnectAttempt(proxy, to, options, signal, loadKerberos);
  using _ = addAbortListener(signal, () => attempt.destroy());
  try {
    return await attempt.open();
  } catch (error) {
    attempt.destroy();
    throw attempt.explain(error);
  }
}

/** The CONNECT requests of one attempt, on one connection as long as the proxy keeps it. */
class ConnectAttempt {
  readonly #proxy: ProxyServer;
  readonly #options: ProxyOptions;
  readonly #signal: AbortSignal;
  readonly #at: string;
  readonly #authority: string;
  readonly #authentication: Authentication;
  /** The step that the attempt waits for, as the end of "took too long". */
  #step = "";
  /** Set by `#connect`; an abort may come before. */
  #connection!: ProxyConnection;
  #authorization: Authorization | undefined;
  #password = "";
  /** Basic was, or could not be, sent to a proxy that has not asked for it. */
  #isUnasked = false;
  /** See `RefusedConnect`. */
  #unsent = "";

  constructor(proxy: ProxyServer, to: Target, options: ProxyOptions, signal: AbortSignal, loadKerberos: LoadKerberos) {
    this.#proxy = proxy;
    this.#options = options;
    this.#signal = signal;
    this.#at = formatProxy(proxy);
    this.#authority = formatTarget(to);
    this.#authentication = new Authentication({
      proxyHost: proxy.host,
      authority: this.#authority,
      credentials: this.#credentials,
      isUnverified: options.isUnverified ?? false,
      tickets: options.tickets,
      loadKerberos,
      signal,
    });
  }

  destroy(): void {
    this.#connection?.socket.destroy();
  }

  async open(): Promise<Socket> {
    await this.#connect();
    for (let requests = 1; ; requests++) {
      const head = await this.#request();
      const isOpen = head.status >= 200 && head.status < 300;
      // The same answer to the password as to none says nothing about the password.
      const isUndecided = asksForLogin(head.status) || (this.#isUnasked && mayWantPassword(head));
      if (!isUndecided) this.#options.login?.onAccepted(isOpen);
      if (isOpen) return this.#accept(head);
      if (mayWantPassword(head) && (await this.#sendUnasked(head))) continue;
      if (head.status !== 407) throw refusal(await this.#refused(head));
      await this.#authorize(head, requests === MAX_REQUESTS);
      if (!(await this.#connection.skipBody(head))) await this.#connect();
    }
  }

  /** Opens the first connection, or replaces it. */
  async #connect(): Promise<void> {
    this.destroy();
    this.#step = "to accept the connection: check its address, and firewalls on the way";
    const raw = await dialTcp(this.#proxy, this.#at, this.#signal);
    this.#use(raw);
    if (this.#proxy.scheme === "https") {
      this.#step = "in the TLS handshake";
      this.#use(await secureProxy(raw, this.#proxy, this.#options.tls ?? {}, this.#signal));
    }
  }

  #use(socket: Socket): void {
    this.#connection = new ProxyConnection(socket);
    this.#signal.throwIfAborted();
  }

  async #request(): Promise<AnswerHead> {
    this.#step = `to answer CONNECT to ${this.#authority}`;
    if (this.#authorization !== undefined && this.#authentication.scheme?.sends !== "ticket") {
      this.#options.login?.onSent();
    }
    const answer = await this.#connection.request(this.#header());
    if (answer.head !== undefined) return answer.head;
    if (isTlsError(answer.error)) throw tlsFault(this.#proxy, answer.error);
    // Some proxies close the connection after each 407, whatever their header says. They did not see this request.
    if (answer.isEmpty && this.#connection.isReused && this.#mayResend && (await this.#authorizeAgain())) {
      await this.#connect();
      return this.#request();
    }
    if (answer.isEmpty && (await this.#sendUnasked())) return this.#request();
    throw this.#fault(
      "proxy_closed",
      `closed the connection and did not answer CONNECT to ${this.#authority}: check that it is an HTTP proxy, and what its log says${this.#unsent}`,
      answer.error,
    );
  }

  get #mayResend(): boolean {
    return this.#options.login?.mayResend() ?? true;
  }

  #header(): string {
    const lines = [
      `CONNECT ${this.#authority} HTTP/1.1`,
      `Host: ${this.#authority}`,
      "User-Agent: culvert",
      // Old proxies keep the connection for another request only with this field.
      "Proxy-Connection: keep-alive",
      ...(this.#authorization === undefined ? [] : [`Proxy-Authorization: ${this.#authorization.value}`]),
    ];
    return `${lines.join("\r\n")}\r\n\r\n`;
  }

  /** Sets the authorization of the next request. */
  async #authorize(head: AnswerHead, isLast: boolean): Promise<void> {
    const fields = head.fields.get("proxy-authenticate") ?? [];
    try {
      const authorization = await this.#waitForTicket(() => this.#authentication.answer(fields));
      if (isLast || !this.#mayResend) throw this.#authentication.endless;
      this.#authorization = authorization;
    } catch (error) {
      if (!(error instanceof AuthenticationFailed)) throw error;
      const { why, message, cause } = error;
      const sentence = `the proxy ${this.#at} ${printable(message, MAX_CAUSE)}`;
      throw faultOf(`proxy_auth_${why}`, sentence, await this.#refused(head), cause);
    }
    this.#noteClear();
  }

  #noteClear(): void {
    const { scheme } = this.#authentication;
    if (scheme?.sends !== "password" || this.#proxy.scheme !== "http") return;
    this.#options.onNote?.(`the proxy ${this.#at} is sent its password in the clear (${scheme.name}, over http://)`);
  }

  /**
   * Connects again for a request with the password, which the proxy has not asked for; once. `head` is absent if the
   * proxy closed the connection. Returns `false` if there is none that may be sent. Rejects with a `RouteFault` while
   * it must wait.
   */
  async #sendUnasked(head?: AnswerHead): Promise<boolean> {
    if (this.#isUnasked || this.#authorization !== undefined) return false;
    this.#isUnasked = true;
    const step = this.#step;
    try {
      this.#authorization = await this.#authentication.unasked();
    } catch (error) {
      if (error instanceof RouteFault) {
        const answer = head === undefined ? "the connection was closed" : answerText(await this.#refused(head));
        error.message += `${NOT_ASKED} (${answer})`;
      }
      throw error;
    }
    this.#step = step;
    if (this.#authorization === undefined) {
      if (this.#options.isWithheld) this.#unsent = WITHHELD_UNASKED;
      return false;
    }
    this.#noteClear();
    await this.#connect();
    return true;
  }

  /** Renews the authorization for a new connection. Gives `false` if it was bound to the old one. */
  async #authorizeAgain(): Promise<boolean> {
    const again = await this.#waitForTicket(() => this.#authentication.again());
    if (again !== undefined) this.#authorization = again;
    return again !== undefined;
  }

  async #accept(head: AnswerHead): Promise<Socket> {
    const fields = ["proxy-authenticate", "proxy-authentication-info"].flatMap((name) => head.fields.get(name) ?? []);
    const problem = await this.#waitForTicket(() => this.#authentication.verify(fields));
    const { scheme, offered } = this.#authentication;
    if (problem !== undefined) {
      throw this.#fault("proxy_protocol", `does not prove who it is (${scheme?.name}): ${problem}`);
    }
    if (scheme !== undefined) this.#options.onAuthenticated?.(scheme.name, offered);
    return this.#connection.socket;
  }

  /** Kerberos may wait for a KDC and cannot be cancelled. `#credentials` sets a step of its own. */
  async #waitForTicket<T>(work: () => Promise<T>): Promise<T> {
    const step = this.#step;
    this.#step = WAITING_FOR_TICKET;
    const done = await untilAborted(work(), this.#signal);
    this.#step = step;
    return done;
  }

  readonly #credentials = async (): Promise<ProxyCredentials | undefined> => {
    this.#step = "to check the user and the password, which another connection of this process has sent";
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
      unsent: this.#unsent,
      secrets: this.#authorization === undefined ? [] : [this.#authorization.secret, this.#password],
    };
  }

  #fault(fault: RouteFaultCode, what: string, cause?: unknown): RouteFault {
    return new RouteFault(fault, `the proxy ${this.#at} ${printable(what, MAX_SENTENCE)}`, { at: this.#at, cause });
  }

  explain(error: unknown): unknown {
    if (this.#signal.aborted) {
      const message = `the proxy ${this.#at} took too long ${this.#step}`;
      const Late = this.#step === WAITING_FOR_TICKET ? KdcTimeout : RouteFault;
      return new Late("timeout", message, { at: this.#at, cause: this.#signal.reason });
    }
    if (error instanceof AuthenticationFailed)
      return this.#fault(`proxy_auth_${error.why}`, error.message, error.cause);
    return error instanceof UnreadableAnswer ? this.#fault("proxy_protocol", error.message, error) : error;
  }
}

/** A CONNECT that a proxy has refused. */
interface RefusedConnect {
  /** `formatProxy`. */
  readonly at: string;
  /** The requested `host:port`. */
  readonly authority: string;
  readonly head: AnswerHead;
  /** The beginning of the body. */
  readonly page: string;
  /** The end of the sentence: why the proxy was not sent the password. Empty if there is nothing to say. */
  readonly unsent: string;
  /** Secrets that were sent to the proxy. Its answer may repeat them. */
  readonly secrets: readonly string[];
}

/** The fault for an answer with any status except 2xx and 407. */
export function refusal(refused: RefusedConnect): RouteFault {
  const { at, authority, head } = refused;
  if (isCaptivePortal(head.status)) return faultOf("web_page", `the proxy ${at} ${CAPTIVE_PORTAL}`, refused);
  const [fault, what] = meaning(head.status, authority);
  return faultOf(fault, `the proxy ${at} ${what}`, refused);
}

function faultOf(fault: RouteFaultCode, sentence: string, refused: RefusedConnect, cause?: unknown): RouteFault {
  const { at, head, unsent } = refused;
  const retryAfterMs = parseRetryAfter(head.fields.get("retry-after")?.[0]);
  return new RouteFault(fault, `${sentence}${unsent} (${answerText(refused)})`, { at, cause, retryAfterMs });
}

/** Does this answer ask for a login? Any other answer means that the proxy has accepted the credentials. */
function asksForLogin(status: number): boolean {
  return status === 401 || status === 407 || isCaptivePortal(status);
}

/** Whether a proxy that never asks for a password may answer so until it sees one. */
function mayWantPassword({ status, fields }: AnswerHead): boolean {
  return status === 401 || status === 403 || (status === 407 && !fields.has("proxy-authenticate"));
}

const CAPTIVE_PORTAL =
  "shows a web page in place of the server, most likely a login (a captive portal): log in from this machine with a browser that goes through it, or ask its administrators to let this machine pass without";

/** A redirection, or 511 (RFC 6585 §6). */
function isCaptivePortal(status: number): boolean {
  return (status >= 300 && status < 400) || status === 511;
}

function meaning(status: number, authority: string): readonly [RouteFaultCode, string] {
  if (status === 401 || status === 403 || status === 451) {
    return [
      "proxy_forbidden",
      `does not allow CONNECT to ${authority}: ask its administrators to allow this destination`,
    ];
  }
  if (status === 502 || status === 503 || status === 504) {
    return ["proxy_unavailable", `cannot reach ${authority}: check its name and port as the proxy sees them`];
  }
  if (status === 429 || (status >= 500 && status !== 501 && status !== 505)) {
    return ["proxy_unavailable", `cannot serve CONNECT to ${authority} now`];
  }
  return ["proxy_protocol", `does not take CONNECT to ${authority}: check that it is an HTTP proxy`];
}

/** `403 Forbidden: text of its page`, or the address of a captive portal. */
function answerText({ head, page, secrets }: RefusedConnect): string {
  const shown = (text: string): string => (secrets.some((secret) => revealsSecret(text, secret)) ? "" : text);
  const line = printable(`${head.status} ${shown(head.reason)}`);
  const [location = ""] = isCaptivePortal(head.status) ? (head.fields.get("location") ?? []) : [];
  const redirect = printableLocation(shown(location));
  const text = redirect === "" ? printable(textOfPage(shown(page))) : `to "${redirect}"`;
  return text === "" ? line : `${line}: ${text}`;
}

/** The title of an HTML page, or its text without styles and scripts, which come first in most pages. */
function textOfPage(page: string): string {
  if (!page.trimStart().startsWith("<")) return page;
  const title = /<title[^>]*>([^<]*)/i.exec(page)?.[1]?.trim();
  if (title !== undefined && title !== "") return title;
  return page.replace(/<(style|script)\b[\s\S]*?(?:<\/\1>|$)/gi, " ").replace(/<[^>]*(?:>|$)/g, " ");
}
