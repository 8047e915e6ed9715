import { fileURLToPath } from "node:url";
import { seconds } from "../basics/text.ts";
import { readFailure } from "../documents/read-bounded.ts";
import { printable } from "../outcomes.ts";
import { identityWords } from "../tls/identity-words.ts";
import { isUntrusted } from "../tls/untrusted.ts";
import { BoundedFile } from "./bounded-file.ts";
import { networkFault } from "./dial-tcp.ts";
import { RouteFault } from "./fault.ts";
import { get } from "./pac-fetch.ts";

/** The largest known PAC files have some hundred kilobytes. */
const MAX_BYTES = 1024 * 1024;
const FETCH_TIMEOUT_MS = 10_000;
const REFRESH_MS = 10 * 60_000;

/** The text of a PAC script. Rejects with a `RouteFault`. */
export interface PacSource {
  /** What logs call it: never with a query, which may be somebody's secret. */
  readonly name: string;
  /** Anybody on the path to its server may have written it. */
  readonly isFetchedInClear: boolean;
  read(signal: AbortSignal, options: PacReading): Promise<string>;
}

export interface PacReading {
  /** PEM: whom an https server may come from, beside the well-known authorities. Asked for such a server only. */
  readonly ca?: (() => readonly string[] | undefined) | undefined;
  /** Told of what went wrong without stopping us. */
  readonly onNote?: ((note: string) => void) | undefined;
}

/** `FILE_OR_URL`; throws an Error whose message continues "--pac". */
export function pacSource(location: string, now: () => number = () => performance.now()): PacSource {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(location)?.[1]?.toLowerCase();
  if (scheme === undefined) return new PacFile(location);
  if (!["http", "https", "file"].includes(scheme))
    throw new Error("needs a file or an http://, https:// or file:// URL");
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

/** Read each time: it may have changed, and costs nothing beside a connection. */
class PacFile implements PacSource {
  readonly name: string;
  /** Whoever may write the file was chosen by who named it with --pac, as for every other file that an option names. */
  readonly isFetchedInClear = false;
  readonly #file: BoundedFile;

  constructor(path: string) {
    this.name = path;
    this.#file = new BoundedFile(path, MAX_BYTES);
  }

  async read(signal: AbortSignal): Promise<string> {
    try {
      return await textOf([await this.#file.read(signal)], this.name);
    } catch (error) {
      if (error instanceof RouteFault) throw error;
      if (signal.aborted) throw lateScript(this.name, "read in time");
      throw pacFault(this.name, `cannot be read: ${readFailure(error)}`, error);
    }
  }
}

/** Fetched again now and then; while that fails, the last one is as good as ever. */
class PacUrl implements PacSource {
  readonly name: string;
  readonly isFetchedInClear: boolean;
  readonly #url: URL;
  readonly #now: () => number;
  #kept: string | undefined;
  #keptUntil = 0;

  constructor(url: URL, now: () => number) {
    this.name = `${url.origin}${url.pathname}`;
    // An http:// URL may redirect to https://, and anybody may have sent that redirect. The reverse is not followed.
    this.isFetchedInClear = url.protocol === "http:";
    this.#url = url;
    this.#now = now;
  }

  async read(signal: AbortSignal, { ca, onNote }: PacReading): Promise<string> {
    if (this.#kept !== undefined && this.#now() < this.#keptUntil) return this.#kept;
    try {
      this.#kept = await this.#fetch(ca, signal);
    } catch (error) {
      if (this.#kept === undefined) throw error;
      onNote?.(`the PAC script from before stays in use: ${(error as Error).message}`);
    }
    this.#keptUntil = this.#now() + REFRESH_MS;
    return this.#kept;
  }

  async #fetch(ca: PacReading["ca"], signal: AbortSignal): Promise<string> {
    const limit = AbortSignal.timeout(FETCH_TIMEOUT_MS);
    try {
      return await textOf(await get(this.#url, { ca, signal: AbortSignal.any([signal, limit]) }), this.name);
    } catch (error) {
      if (error instanceof RouteFault) throw error;
      if (limit.aborted) throw lateScript(this.name, `fetched within ${seconds(FETCH_TIMEOUT_MS)}`);
      if (signal.aborted) throw lateScript(this.name, "fetched in time");
      throw this.#fault(error as NodeJS.ErrnoException);
    }
  }

  #fault(error: NodeJS.ErrnoException): RouteFault {
    const { code = "", syscall } = error;
    if (isUntrusted(error)) {
      const what = `cannot be fetched: its server's certificate comes from a CA that is not known here: give that CA with --proxy-ca (${code})`;
      return pacFault(this.name, what, error);
    }
    // Of the network, not of what came over it.
    if (syscall === "connect" || syscall === "getaddrinfo" || error instanceof AggregateError)
      return networkFault(error, this.#url.hostname, `the PAC script ${this.name}`);
    return pacFault(this.name, `cannot be fetched: ${printable(identityWords(error))}`, error);
  }
}

function lateScript(name: string, what: string): RouteFault {
  return new RouteFault("timeout", `the PAC script ${name} could not be ${what}`, { at: name });
}

async function textOf(chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, name: string): Promise<string> {
  const read: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) throw pacFault(name, "is larger than 1 MiB");
    read.push(chunk);
  }
  // Takes a byte order mark away, too.
  return new TextDecoder().decode(Buffer.concat(read));
}

/** Without its script, nobody knows a proxy. */
export function pacFault(name: string, what: string, cause?: unknown): RouteFault {
  return new RouteFault("pac", `the PAC script ${name} ${what}`, { at: name, cause });
}
