import type { LookupAddress } from "node:dns";
import { closeSync, openSync, readFileSync, statSync } from "node:fs";
import { isIP } from "node:net";
import { hostname } from "node:os";
import { getOrMake } from "../basics/collections.ts";

/** Where the operating system says how names are resolved. */
export const SYSTEM_FILES = {
  resolv: "/etc/resolv.conf",
  hosts: "/etc/hosts",
  nsswitch: "/etc/nsswitch.conf",
} as const;
export type NameFilePaths = Readonly<Record<keyof typeof SYSTEM_FILES, string>>;

/** `resolv.conf`, as glibc reads it. */
export interface ResolvConf {
  readonly servers: readonly string[];
  /** Without dots at the end; the empty one is the root. */
  readonly search: readonly string[];
  readonly ndots: number;
  /** Time for one server, ms. */
  readonly timeoutMs: number;
  /** How often all servers are asked. */
  readonly attempts: number;
  readonly rotate: boolean;
  /** `no-aaaa`: IPv4 addresses only. */
  readonly onlyIpv4: boolean;
}

/** The order in which the hosts file, DNS and the system's other sources are asked. */
export interface NameSources {
  readonly own: readonly ("files" | "dns")[];
  /** When `getaddrinfo` is asked, which knows the sources that we do not. */
  readonly system: "never" | "after" | "first";
}

/** The three files. Each is read again when it has changed, which glibc does, too. */
export class NameFiles {
  readonly #resolv: CachedFile<ResolvConf>;
  readonly #hosts: CachedFile<ReadonlyMap<string, readonly LookupAddress[]>>;
  readonly #nsswitch: CachedFile<NameSources>;

  constructor(paths: NameFilePaths = SYSTEM_FILES) {
    this.#resolv = new CachedFile(paths.resolv, parseResolvConf);
    this.#hosts = new CachedFile(paths.hosts, parseHosts);
    this.#nsswitch = new CachedFile(paths.nsswitch, parseNsswitch);
  }

  get resolv(): ResolvConf {
    return this.#resolv.value;
  }

  get sources(): NameSources {
    return this.#nsswitch.value;
  }

  addressesOf(host: string): readonly LookupAddress[] {
    return this.#hosts.value.get(host.toLowerCase()) ?? [];
  }
}

/** c-ares does not say why it has no socket. Throws when file descriptors run out. */
export function requireDescriptor(): void {
  try {
    closeSync(openSync("/dev/null", "r"));
  } catch (error) {
    if (/^E[MN]FILE$/.test((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
}

class CachedFile<T> {
  readonly #path: string;
  readonly #parse: (text: string) => T;
  #state = "";
  #value: T | undefined;

  constructor(path: string, parse: (text: string) => T) {
    this.#path = path;
    this.#parse = parse;
  }

  /** A missing file is an empty one. Throws when file descriptors run out. */
  get value(): T {
    const found = statSync(this.#path, { bigint: true, throwIfNoEntry: false });
    const state = found === undefined ? "none" : `${found.dev} ${found.ino} ${found.size} ${found.mtimeNs}`;
    if (this.#value === undefined || this.#state !== state) {
      this.#value = this.#parse(found === undefined ? "" : readOrEmpty(this.#path));
      this.#state = state;
    }
    return this.#value;
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (["EACCES", "EPERM", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
    throw error;
  }
}

/** The bounds of glibc: more servers are not asked, and higher numbers are lowered. */
const MOST = { servers: 3, ndots: 15, timeout: 30, attempts: 5 };

/** Parses resolv.conf(5). The variables LOCALDOMAIN and RES_OPTIONS come after the file, as there. */
export function parseResolvConf(text: string, env: NodeJS.ProcessEnv = process.env): ResolvConf {
  const servers: string[] = [];
  let search: readonly string[] | undefined;
  const options: string[] = [];
  for (const line of text.split("\n")) {
    const [keyword, ...values] = line
      .replace(/^[#;].*|\s[#;].*$/g, "")
      .trim()
      .split(/\s+/);
    if (keyword === "nameserver" && isIP(values[0] ?? "") !== 0) servers.push(values[0] ?? "");
    else if (keyword === "search") search = values;
    else if (keyword === "domain") search = values.slice(0, 1);
    else if (keyword === "options") options.push(...values);
  }
  if (env["LOCALDOMAIN"] !== undefined) search = words(env["LOCALDOMAIN"]);
  options.push(...words(env["RES_OPTIONS"] ?? ""));
  const number = (name: "ndots" | "timeout" | "attempts", otherwise: number, least: number): number => {
    const given = options.filter((option) => option.startsWith(`${name}:`)).at(-1);
    const value = Number.parseInt(given?.slice(name.length + 1) ?? "", 10);
    return Number.isNaN(value) ? otherwise : Math.max(least, Math.min(MOST[name], value));
  };
  return {
    servers: servers.length === 0 ? ["127.0.0.1"] : servers.slice(0, MOST.servers),
    search: (search ?? domainOf(hostname())).map((domain) => domain.replace(/\.$/, "")),
    ndots: number("ndots", 1, 0),
    timeoutMs: number("timeout", 5, 1) * 1_000,
    attempts: number("attempts", 2, 1),
    rotate: options.includes("rotate"),
    onlyIpv4: options.includes("no-aaaa"),
  };
}

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== "");
}

function domainOf(name: string): string[] {
  const dot = name.indexOf(".");
  return dot === -1 ? [] : [name.slice(dot + 1)];
}

/** Parses hosts(5): all addresses of each name. */
export function parseHosts(text: string): ReadonlyMap<string, readonly LookupAddress[]> {
  const known = new Map<string, LookupAddress[]>();
  for (const line of text.split("\n")) {
    const [address = "", ...names] = words(line.replace(/#.*/, ""));
    const family = isIP(address);
    if (family === 0) continue;
    for (const name of names.map((each) => each.toLowerCase())) {
      const found = getOrMake(known, name, () => []);
      if (!found.some((each) => each.address === address)) found.push({ address, family });
    }
  }
  return known;
}

/** Parses the line `hosts` of nsswitch.conf(5). Its conditions in brackets are left to the system. */
export function parseNsswitch(text: string): NameSources {
  const line = /^[ \t]*hosts:(.*)$/m.exec(text.replace(/#.*/gm, ""))?.[1];
  const sources = words((line ?? "files dns").replace(/\[[^\]]*\]/g, " [] "));
  const own = sources.filter((source) => source === "files" || source === "dns");
  const firstOther = sources.findIndex((source) => source !== "files" && source !== "dns");
  if (firstOther === -1) return { own, system: "never" };
  const isAfter = own.length > 0 && sources.slice(firstOther).every((source) => source !== "files" && source !== "dns");
  return { own, system: isAfter && sources[firstOther] !== "[]" ? "after" : "first" };
}
