import { once } from "node:events";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { connect as connectTls } from "node:tls";
import { fileURLToPath } from "node:url";
import { sniOf } from "../address/server-name.ts";
import { bracketed, type Target } from "../address/target.ts";
import { seconds } from "../basics/text.ts";
import { BoundedFile, readFailure } from "../documents/read-bounded.ts";
import { connectTcp } from "../net/connect-tcp.ts";
import { printable } from "../outcomes.ts";
import { trustIn, wellKnownAuthorities } from "../tls/authorities.ts";
import { identityWords, isUntrusted } from "../tls/server-certificate.ts";
import { networkFault } from "./dial-tcp.ts";
import { evaluatePac } from "./pac-sandbox.ts";
import { type ProxyRoute, type ProxyServer, parseProxyUrl, RouteFault } from "./proxy-route.ts";

/** Time for a script, without the names that it looks up. */
const SCRIPT_TIMEOUT_MS = 2_000;

/** `--pac`: a script that is asked for the proxy routes to each target (proxy auto-configuration). */
export class Pac {
  readonly #source: PacSource;

  /** Throws an Error whose message continues "--pac". */
  constructor(location: string) {
    this.#source = pacSource(location);
  }

  /** The routes that the script names for a target, in its order. Rejects with a `RouteFault`. */
  async routes(to: Target, signal: AbortSignal, options: PacReadOptions = {}): Promise<readonly ProxyRoute[]> {
    const { name, isUnverified } = this.#source;
    const script = await this.#source.read(signal, options);
    const question = { script, url: urlOf(to), host: to.host, timeoutMs: SCRIPT_TIMEOUT_MS };
    const { onNote = () => {} } = options;
    const answer = await evaluatePac(question, signal, { onNote }).catch((error: Error) => {
      throw pacFault(name, error.message);
    });
    if (answer.trim() === "") onNote(`the PAC script ${name} gave no answer for ${to.host}, which means no proxy`);
    const routes = parsePacResult(answer, { from: `PAC ${name}`, isUnverified });
    if (routes === undefined) throw pacFault(name, `names no proxy of a known kind: "${printable(answer, 80)}"`);
    return routes;
  }
}

/** Scripts know http and https. Browsers, too, hide the path of an https URL from them. */
function urlOf({ host, port }: Target): string {
  return new URL(`https://${bracketed(host)}:${port}/`).href;
}

/** A script that names more routes is broken. */
const MAX_ROUTES = 32;

/** SOCKS alone means version 4 to some browsers; servers that still exist speak 5, and resolve names. */
const SCHEMES = new Map<string, ProxyServer["scheme"]>([
  ["PROXY", "http"],
  ["HTTP", "http"],
  ["HTTPS", "https"],
  ["SOCKS", "socks5h"],
  ["SOCKS5", "socks5h"],
]);

/** The facts that the routes of one script share. */
interface PacOrigin {
  readonly from: string;
  readonly isUnverified: boolean;
}

/**
 * Parses the answer of FindProxyForURL: `PROXY a:3128; SOCKS5 b:1080; DIRECT`. As in browsers, unknown entries are left
 * out, and an empty answer means `DIRECT`. Gives `undefined` if no entry of a non-empty answer is known.
 */
export function parsePacResult(text: string, origin: PacOrigin): readonly ProxyRoute[] | undefined {
  const entries = text.split(";").flatMap((entry) => entry.trim() || []);
  if (entries.length === 0) return [{ kind: "direct" }];
  const routes = entries.slice(0, MAX_ROUTES).flatMap((entry) => parseEntry(entry, origin) ?? []);
  return routes.length === 0 ? undefined : routes;
}

function parseEntry(entry: string, origin: PacOrigin): ProxyRoute | undefined {
  const [, keyword = "", authority = ""] = /^(\S+)(?:\s+(\S+))?$/.exec(entry) ?? [];
  if (keyword.toUpperCase() === "DIRECT") return { kind: "direct" };
  const scheme = SCHEMES.get(keyword.toUpperCase());
  if (scheme === undefined) return undefined;
  try {
    return { kind: "proxy", proxy: parseProxyUrl(`${scheme}://${authority}`), ...origin };
  } catch {
    return undefined;
  }
}

/** The largest known PAC files have some hundred kilobytes. */
const MAX_BYTES = 1024 * 1024;
const FETCH_TIMEOUT_MS = 10_000;
const REFRESH_MS = 10 * 60_000;
/** The limit that browsers have. */
const MAX_REDIRECTS = 5;

/** Where the text of a PAC script comes from. */
export interface PacSource {
  /** For logs. It has no query, which may be a secret. */
  readonly name: string;
  /** The script is fetched without TLS, so anybody on the path to its server may have written it. */
  readonly isUnverified: boolean;
  /** Rejects with a `RouteFault`. */
  read(signal: AbortSignal, options: PacReadOptions): Promise<string>;
}

export interface PacReadOptions {
  /** PEM: CAs of an https server, in addition to the well-known ones. Called for such a server only. */
  readonly ca?: (() => readonly string[] | undefined) | undefined;
  /** Called with a problem that does not stop the attempt. */
  readonly onNote?: ((note: string) => void) | undefined;
}

/** The source for `FILE_OR_URL`. Throws an Error whose message continues "--pac". */
export function pacSource(location: string, now: () => number = () => performance.now()): PacSource {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(location)?.[1]?.toLowerCase();
  if (scheme === undefined) return new PacFile(location);
  if (!["http", "https", "file"].includes(scheme)) {
    throw new Error("needs a file or an http://, https:// or file:// URL");
  }
  if (!URL.canParse(location)) throw new Error("is not a valid URL");
  const url = new URL(location);
  if (url.username !== "" || url.password !== "") throw new Error("must not contain a user or password");
  if (scheme !== "file") return new PacUrl(url, now);
  try {
    return new PacFile(fileURLToPath(url));
  } catch {
    throw new Error("is no file:// URL of a file of this machine: write file:///path");
  }
}

/** A file, which is read for each connection: it may have changed, and a read costs little. */
class PacFile implements PacSource {
  readonly name: string;
  /** The operator trusts those who may write the file, as for every other file that an option names. */
  readonly isUnverified = false;
  readonly #file: BoundedFile;

  constructor(path: string) {
    this.name = path;
    this.#file = new BoundedFile(path, MAX_BYTES);
  }

  async read(signal: AbortSignal): Promise<string> {
    try {
      return new TextDecoder().decode(await this.#file.read(signal));
    } catch (error) {
      if (signal.aborted) throw scriptTimeout(this.name, "read in time");
      throw pacFault(this.name, `cannot be read: ${readFailure(error)}`, error);
    }
  }
}

/** A URL, which is fetched again every `REFRESH_MS`. When that fails, the script from before stays in use. */
class PacUrl implements PacSource {
  readonly name: string;
  readonly isUnverified: boolean;
  readonly #url: URL;
  readonly #now: () => number;
  #script: string | undefined;
  #freshUntil = 0;

  constructor(url: URL, now: () => number) {
    this.name = `${url.origin}${url.pathname}`;
    // An http:// URL may redirect to https://, and that redirect may be forged. The reverse is not followed.
    this.isUnverified = url.protocol === "http:";
    this.#url = url;
    this.#now = now;
  }

  async read(signal: AbortSignal, { ca, onNote }: PacReadOptions): Promise<string> {
    if (this.#script !== undefined && this.#now() < this.#freshUntil) return this.#script;
    try {
      this.#script = await this.#fetch(ca, signal);
    } catch (error) {
      if (this.#script === undefined) throw error;
      onNote?.(`the PAC script from before stays in use: ${(error as Error).message}`);
    }
    this.#freshUntil = this.#now() + REFRESH_MS;
    return this.#script;
  }

  async #fetch(ca: PacReadOptions["ca"], signal: AbortSignal): Promise<string> {
    const limit = AbortSignal.timeout(FETCH_TIMEOUT_MS);
    try {
      return await textOf(await fetchFollowing(this.#url, ca, AbortSignal.any([signal, limit])), this.name);
    } catch (error) {
      if (error instanceof RouteFault) throw error;
      if (limit.aborted) throw scriptTimeout(this.name, `fetched within ${seconds(FETCH_TIMEOUT_MS)}`);
      if (signal.aborted) throw scriptTimeout(this.name, "fetched in time");
      throw this.#fault(error as NodeJS.ErrnoException);
    }
  }

  #fault(error: NodeJS.ErrnoException): RouteFault {
    const { code = "", syscall } = error;
    if (isUntrusted(error)) {
      const what = `cannot be fetched: its server's certificate comes from a CA that is not known here: give that CA with --proxy-ca (${code})`;
      return pacFault(this.name, what, error);
    }
    if (syscall === "connect" || syscall === "getaddrinfo" || error instanceof AggregateError) {
      return networkFault(error, this.#url.hostname, `the PAC script ${this.name}`);
    }
    return pacFault(this.name, `cannot be fetched: ${printable(identityWords(error))}`, error);
  }
}

function scriptTimeout(name: string, what: string): RouteFault {
  return new RouteFault("timeout", `the PAC script ${name} could not be ${what}`, { at: name });
}

async function textOf(chunks: AsyncIterable<Uint8Array>, name: string): Promise<string> {
  const read: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) throw pacFault(name, "is larger than 1 MiB");
    read.push(chunk);
  }
  // This also removes a byte order mark.
  return new TextDecoder().decode(Buffer.concat(read));
}

/** The script cannot be used, so no proxy is known. */
function pacFault(name: string, what: string, cause?: unknown): RouteFault {
  return new RouteFault("pac", `the PAC script ${name} ${what}`, { at: name, cause });
}

/** The server gave no script. The message continues "the PAC script cannot be fetched: ". */
class NotServed extends Error {}

/**
 * The response to a GET after all redirects, over a direct connection, because no proxy is known yet. Node's `fetch`
 * does not accept additional CAs.
 */
async function fetchFollowing(url: URL, ca: PacReadOptions["ca"], signal: AbortSignal): Promise<IncomingMessage> {
  let at = url;
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const response = await get(at, ca, signal);
    const { statusCode = 0, headers } = response;
    if (statusCode >= 200 && statusCode < 300) return response;
    response.destroy();
    if (statusCode < 300 || statusCode >= 400 || headers.location === undefined) {
      throw new NotServed(`its server answered ${statusCode}`);
    }
    at = redirected(at, headers.location);
  }
  throw new NotServed(`its server redirects more than ${MAX_REDIRECTS} times`);
}

async function get(url: URL, list: PacReadOptions["ca"], signal: AbortSignal): Promise<IncomingMessage> {
  const isSecure = url.protocol === "https:";
  const ca = isSecure ? list?.() : undefined;
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const socket = await connectTcp({ host, port: Number(url.port || (isSecure ? 443 : 80)) }, signal);
  // NODE_TLS_REJECT_UNAUTHORIZED=0 must not apply: a forged script chooses the proxy.
  const secured = { ...sniOf(host), ALPNProtocols: ["http/1.1"], rejectUnauthorized: true };
  const trust = trustIn(ca && [...wellKnownAuthorities(), ...ca]);
  const request = (isSecure ? https : http).get(url, {
    createConnection: () => (isSecure ? connectTls({ ...secured, ...trust, socket, host }) : socket),
    signal,
    headers: { "accept-encoding": "identity", "user-agent": "culvert" },
  });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  // A later error also ends the response, where its reader sees it.
  request.on("error", () => {});
  return response;
}

/** A redirect from https to http is refused, because anybody on the path could change that script. */
function redirected(from: URL, location: string): URL {
  if (!URL.canParse(location, from.href)) throw new NotServed("its server redirects to an invalid URL");
  const to = new URL(location, from);
  const allowed = from.protocol === "https:" ? ["https:"] : ["http:", "https:"];
  if (!allowed.includes(to.protocol)) {
    throw new NotServed(`its server redirects from ${from.protocol} to ${to.protocol}`);
  }
  return to;
}
