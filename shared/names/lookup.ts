import { type LookupAddress, promises as system } from "node:dns";
import type { Resolver } from "node:dns/promises";
import { isIP } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { domainToASCII } from "node:url";
import { SharedWork } from "../basics/promises.ts";
import { inOrderOfUse } from "./address-order.ts";
import { type NameFilePaths, NameFiles, type ResolvConf, requireDescriptor, SYSTEM_FILES } from "./name-files.ts";
import { isNothing, isSilence, NameServers } from "./name-servers.ts";

/** The deadline of a look-up: two rounds over three name servers, by glibc's defaults. */
const DEADLINE_MS = 30_000;
/** When one family has answered, time that the other one still has. Some name servers drop questions for IPv6. */
const OTHER_FAMILY_MS = 1_000;
/** `getaddrinfo` may stand behind other names. Then we ask, too. */
const SYSTEM_MS = 1_000;

export interface NamesOptions {
  readonly paths?: NameFilePaths;
  readonly port?: number;
  /** The system's own way, which waits for other names. */
  readonly getaddrinfo?: (host: string) => Promise<readonly LookupAddress[]>;
  readonly platform?: NodeJS.Platform;
  /** Maximum number of names that are looked up at once. A further one is refused with `EBUSY`. Default: no bound. */
  readonly maxRunning?: number;
}

/**
 * Finds the addresses of names as the operating system does, except that no name waits for another
 * (docs/decisions/0043-names-by-themselves.md).
 */
export class Names {
  readonly #files: NameFiles;
  readonly #servers: NameServers;
  readonly #getaddrinfo: (host: string) => Promise<readonly LookupAddress[]>;
  readonly #platform: NodeJS.Platform;
  readonly #maxRunning: number;
  /** Look-ups of the same name at the same time share one question. */
  readonly #running = new SharedWork<readonly LookupAddress[]>();

  constructor(options: NamesOptions = {}) {
    this.#files = new NameFiles(options.paths ?? SYSTEM_FILES);
    this.#servers = new NameServers(options.port);
    const { getaddrinfo = (host: string) => system.lookup(host, { all: true }) } = options;
    this.#getaddrinfo = (host) =>
      getaddrinfo(host).catch((error) => {
        requireDescriptor(); // when none is left, a module of nsswitch.conf such as mdns fails with EINVAL
        throw error;
      });
    this.#platform = options.platform ?? process.platform;
    this.#maxRunning = options.maxRunning ?? Number.POSITIVE_INFINITY;
  }

  /** All addresses, in the order in which they are tried. Rejects with the codes that `dns.lookup` has. */
  async find(host: string, timeoutMs = DEADLINE_MS): Promise<readonly LookupAddress[]> {
    if (!this.#running.has(host) && this.#running.size >= this.#maxRunning) throw lookupFailure(host, "EBUSY");
    const late = new AbortController();
    const inTime = (found: Promise<readonly LookupAddress[]>) =>
      Promise.race([found, failsAfter(host, timeoutMs, late.signal)]);
    try {
      return await this.#running.join(host, (over) => this.#find(host, over), inTime);
    } finally {
      late.abort();
    }
  }

  srv(name: string) {
    return this.#servers.ask(this.#files.resolv, (resolver) => resolver.resolveSrv(name));
  }

  /** How long an answer may be kept, seconds. */
  async ttl(name: string, family: number): Promise<number> {
    const records = await this.#servers.ask<{ readonly ttl: number }[]>(this.#files.resolv, (resolver) =>
      family === 6 ? resolver.resolve6(name, { ttl: true }) : resolver.resolve4(name, { ttl: true }),
    );
    return Math.min(...records.map(({ ttl }) => ttl));
  }

  async #find(host: string, over: AbortSignal): Promise<readonly LookupAddress[]> {
    const plain = addressOf(host);
    if (plain !== undefined) return [plain];
    const { own, system } = this.#files.sources;
    // c-ares drops the zone of a link-local name server (fe80::1%eth0).
    const isZoned = this.#files.resolv.servers.some((server) => server.includes("%"));
    if (this.#platform !== "linux" || isZoned) return this.#getaddrinfo(host);
    if (system === "first") return this.#findBySystemFirst(host, over);
    try {
      return await this.#findOurselves(host, over);
    } catch (error) {
      if (system === "never" || (error as NodeJS.ErrnoException).code !== "ENOTFOUND") throw error;
      if (!own.includes("dns")) return this.#getaddrinfo(host);
      const asked = this.#getaddrinfo(host);
      asked.catch(() => {});
      const found = await Promise.race([asked.catch(() => undefined), wait(SYSTEM_MS)]);
      if (found === undefined) throw error;
      return found;
    }
  }

  async #findBySystemFirst(host: string, over: AbortSignal): Promise<readonly LookupAddress[]> {
    const asked = this.#getaddrinfo(host);
    if (!this.#files.sources.own.includes("dns")) return asked;
    const found = await Promise.race([asked, wait(SYSTEM_MS)]);
    if (found !== undefined) return found;
    const own = this.#findOurselves(host, over).catch(async (error) => {
      await wait(SYSTEM_MS);
      throw error;
    });
    // The slower of the two loses, and nobody waits for it.
    for (const each of [asked, own]) each.catch(() => {});
    return Promise.race([asked, own]);
  }

  async #findOurselves(host: string, over: AbortSignal): Promise<readonly LookupAddress[]> {
    let failure = lookupFailure(host, "ENOTFOUND");
    for (const source of this.#files.sources.own) {
      if (source === "dns") {
        try {
          return await this.#askDns(host, over);
        } catch (error) {
          failure = error as NodeJS.ErrnoException;
        }
      } else {
        const known = this.#files.addressesOf(host);
        if (known.length > 0) return inOrderOfUse(known);
      }
    }
    throw failure;
  }

  async #askDns(host: string, over: AbortSignal): Promise<readonly LookupAddress[]> {
    if (/(^|\.)localhost\.?$/i.test(host)) return inOrderOfUse(LOOPBACK); // RFC 6761, 6.3: never asked of others
    const conf = this.#files.resolv;
    let code = "ENOTFOUND";
    let cause: unknown;
    for (const name of fullNames(host, conf)) {
      try {
        return await inOrderOfUse(await this.#askBoth(name, conf, over));
      } catch (error) {
        cause = error;
        if ((error as NodeJS.ErrnoException).code === "ECONNREFUSED") requireDescriptor();
        if (!isNothing(error)) code = lookupCode(error);
        // A server that says nothing would say nothing of the other names either.
        if (isSilence(error) || over.aborted) break;
      }
    }
    throw lookupFailure(host, code, cause);
  }

  async #askBoth(name: string, conf: ResolvConf, over: AbortSignal): Promise<readonly LookupAddress[]> {
    const ask = async (family: 4 | 6): Promise<FamilyAnswer> => {
      try {
        const question = (resolver: Resolver) => (family === 4 ? resolver.resolve4(name) : resolver.resolve6(name));
        const addresses = await this.#servers.ask(conf, question, over);
        return { addresses: addresses.map((address) => ({ address, family })) };
      } catch (error) {
        return { addresses: [], error };
      }
    };
    const asked = conf.onlyIpv4 ? [ask(4)] : [ask(4), ask(6)];
    const first = await Promise.race(asked);
    const isFound = first.addresses.length > 0;
    const all = Promise.all(asked);
    const answers = isFound ? await Promise.race([all, wait(OTHER_FAMILY_MS, [first])]) : await all;
    const addresses = answers.flatMap((answer) => answer.addresses);
    if (addresses.length > 0) return addresses;
    const errors = answers.map(({ error }) => error).filter((error) => error !== undefined);
    throw errors.find((error) => !isNothing(error)) ?? errors[0] ?? lookupFailure(name, "ENOTFOUND");
  }
}

async function failsAfter(host: string, ms: number, signal: AbortSignal): Promise<never> {
  await wait(ms, undefined, { signal }).catch(() => {});
  throw lookupFailure(host, "EAI_AGAIN");
}

interface FamilyAnswer {
  readonly addresses: readonly LookupAddress[];
  readonly error?: unknown;
}

const LOOPBACK: readonly LookupAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

/** An address, also in the short forms that inet_aton(3) takes, such as 127.1. */
function addressOf(host: string): LookupAddress | undefined {
  const address = isIP(host) === 0 && /(^|\.)(\d+|0x[\da-f]*)$/i.test(host) ? domainToASCII(host) : host;
  const family = isIP(address);
  return family === 0 ? undefined : { address, family };
}

/** The names to ask for, in order, as glibc's res_nsearch does. */
function fullNames(host: string, { search, ndots }: ResolvConf): readonly string[] {
  if (host.endsWith(".")) return [host.slice(0, -1)];
  const searched = search.map((domain) => (domain === "" ? host : `${host}.${domain}`));
  const dots = host.split(".").length - 1;
  return [...new Set(dots >= ndots ? [host, ...searched] : [...searched, host])];
}

/** The code of `dns.lookup` for an error of c-ares. */
function lookupCode(error: unknown): string {
  const { code = "" } = error as NodeJS.ErrnoException;
  if (["ETIMEOUT", "ECONNREFUSED", "ESERVFAIL", "ECANCELLED"].includes(code)) return "EAI_AGAIN";
  return /^E(MFILE|NFILE|NOMEM|NOBUFS)$/.test(code) ? code : "EAI_FAIL";
}

/** In the form of an error of `dns.lookup`. */
function lookupFailure(host: string, code: string, cause?: unknown): NodeJS.ErrnoException {
  const error = new Error(`getaddrinfo ${code} ${host}`, { cause });
  return Object.assign(error, { code, syscall: "getaddrinfo", hostname: host });
}

/** The names that the process itself needs. */
export const NAMES = new Names();
/** The names of targets, apart from the others. Each takes 45 KiB as long as no name server answers. */
export const NAMES_OF_TARGETS = new Names({ maxRunning: 1_024 });
