import { existsSync, type Stats } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { IS_ONE_FILE } from "../../basics/program.ts";
import { untilAborted } from "../../basics/promises.ts";
import { shellQuoted } from "../../basics/text.ts";

/** The part of the package `kerberos` in use. It is an optional peer, so its types may be absent at build time. */
export interface Kerberos {
  readonly GSS_MECH_OID_SPNEGO: number;
  initializeClient(service: string, options: { mechOID: number }): Promise<KerberosClient>;
}

export interface KerberosClient {
  readonly contextComplete: boolean;
  /** Input and output are base64. */
  step(challenge: string): Promise<string>;
}

export type LoadKerberos = () => Promise<Kerberos>;

/** Kerberos cannot be used here. The message is the end of a sentence that says why and what to do. */
export class KerberosMissing extends Error {}

export const importKerberos: LoadKerberos = kerberosFrom("kerberos");

/**
 * `import()` gets a variable: for a literal the compiler would require the types of a package that is not installed.
 */
export function kerberosFrom(name: string): LoadKerberos {
  return async () => {
    // It would be looked for in the folder that the process was started in, where anybody may have put it.
    if (IS_ONE_FILE)
      throw new KerberosMissing("the one file of culvert cannot load the package kerberos: run culvert on Node.js");
    try {
      const loaded = await import(name);
      return loaded.default ?? loaded;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      throw new KerberosMissing(
        code === "ERR_MODULE_NOT_FOUND"
          ? `the optional package kerberos is not installed: run "${installLine(packageFolder())}" (it may be built here: on Debian that needs build-essential, python3 and libkrb5-dev)`
          : `the package kerberos does not load: install it again (${message.slice(0, 200)})`,
        { cause: error },
      );
    }
  };
}

/**
 * The command that installs the package into the folder above ours, where our modules also find it. In our own folder
 * npm would remove it, because our lock file does not name it.
 */
export function installLine(folder: string): string {
  const above = dirname(folder);
  // The name of our package has a scope, which is one more folder.
  const modules = basename(above).startsWith("@") ? dirname(above) : above;
  if (basename(modules) !== "node_modules") return `npm install --prefix ${shellQuoted(above)} ${PACKAGE}`;
  const project = dirname(modules);
  const isProject = existsSync(join(project, "package.json"));
  return isProject ? `npm install --prefix ${shellQuoted(project)} ${PACKAGE}` : `npm install --global ${PACKAGE}`;
}

/** The major version is the one in package.json. */
const PACKAGE = "kerberos@7";

/** The folder of this package. */
function packageFolder(): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, "package.json")) && folder !== dirname(folder)) folder = dirname(folder);
  return folder;
}

/** Shorter than for a password: most failures are a KDC that cannot be reached. Four attempts in half an hour. */
const FIRST_WAIT_MS = 2 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;

/**
 * Limits how often all proxy routes of one process request a ticket. An old key in a keytab is a wrong password for the
 * KDC, which locks the account. The library does not distinguish that from other failures, nor does it tell whether it
 * used a key (it also knows keytabs that no variable names). So each failure causes a wait, which ends when the keytab
 * or the ticket cache changes (decision 0030).
 */
export class KerberosTickets {
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #now: () => number;
  readonly #keytab: FileVersion;
  readonly #cache: FileVersion;
  /** The request in progress. It never rejects. */
  #pending: Promise<void> | undefined;
  #failures = 0;
  #failedWith = "";
  #untilMs = 0;

  constructor(
    env: Readonly<Record<string, string | undefined>> = process.env,
    now: () => number = () => performance.now(),
  ) {
    this.#env = env;
    this.#now = now;
    this.#keytab = new FileVersion(pathOf(env["KRB5_CLIENT_KTNAME"] ?? ""));
    this.#cache = new FileVersion(pathOf(env["KRB5CCNAME"] || `/tmp/krb5cc_${process.geteuid?.()}`));
  }

  /**
   * Runs one request for a ticket at a time, because each occupies one of libuv's few threads. Later callers wait for
   * its end and share its failure, so that they go on to a weaker scheme. A request cannot be cancelled: when its
   * caller is aborted, it continues in the background.
   */
  async take<T>(request: () => Promise<T>, signal: AbortSignal): Promise<T> {
    while (this.#pending !== undefined) await untilAborted(this.#pending, signal);
    signal.throwIfAborted();
    const taken = this.#try(request, signal);
    const onEnd = (): void => {
      this.#pending = undefined;
    };
    this.#pending = taken.then(onEnd, onEnd);
    return untilAborted(taken, signal);
  }

  async #try<T>(request: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const files = await this.#files();
    signal.throwIfAborted();
    if (files !== this.#failedWith) this.#failures = 0;
    else if (this.#now() < this.#untilMs) throw this.#tooSoon();
    try {
      const done = await request();
      this.#failures = 0;
      this.#untilMs = 0;
      return done;
    } catch (error) {
      // Read again, because the library records a failure in the ticket cache.
      this.#failedWith = await this.#files();
      this.#untilMs = this.#now() + Math.min(FIRST_WAIT_MS * 2 ** this.#failures, LONGEST_WAIT_MS);
      this.#failures++;
      throw error;
    }
  }

  #tooSoon(): KerberosMissing {
    const minutes = Math.ceil((this.#untilMs - this.#now()) / 60_000);
    const keytab = this.#env["KRB5_CLIENT_KTNAME"] || undefined;
    const subject = keytab === undefined ? "this machine" : `the keytab ${keytab}`;
    const cure =
      keytab === undefined
        ? "run kinit, or name a keytab in KRB5_CLIENT_KTNAME"
        : "check that its key is the account's, with kinit -k -t";
    return new KerberosMissing(
      `${subject} gave no Kerberos ticket and is not tried again for ${minutes} min, or until the keytab or the ticket cache is another, so that no account is locked: ${cure}`,
    );
  }

  async #files(): Promise<string> {
    return (await Promise.all([this.#keytab.read(), this.#cache.read()])).join(", ");
  }
}

/** The path in the library's name of a file. A cache in memory or in the keyring gives a path that does not exist. */
function pathOf(name: string): string {
  return name.replace(/^(?:FILE|DIR):/, "");
}

/** A disk that does not answer delays an attempt by at most this time. */
const STAT_TIMEOUT_MS = 1_000;

type LoadStat = (path: string) => Promise<Pick<Stats, "ino" | "size" | "mtimeMs">>;

/** Tells whether a file has changed, without reading it. The file may be on a network disk that does not answer. */
export class FileVersion {
  readonly #path: string;
  readonly #load: LoadStat;
  #pending: Promise<void> | undefined;
  #last = "";

  constructor(path: string, load: LoadStat = stat) {
    this.#path = path;
    this.#load = load;
  }

  /**
   * A file that is absent or not readable has a version, too. If the disk does not answer, the last version is
   * returned. A stat cannot be cancelled and occupies one of libuv's few threads, so concurrent callers share it.
   */
  async read(): Promise<string> {
    this.#pending ??= this.#stat().finally(() => {
      this.#pending = undefined;
    });
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, STAT_TIMEOUT_MS);
    });
    await Promise.race([this.#pending, timeout]);
    clearTimeout(timer);
    return this.#last;
  }

  async #stat(): Promise<void> {
    try {
      const { ino, size, mtimeMs } = await this.#load(this.#path);
      this.#last = `${ino} ${size} ${mtimeMs}`;
    } catch (error) {
      this.#last = String((error as NodeJS.ErrnoException).code);
    }
  }
}
