import { untilAborted } from "../../basics/promises.ts";
import { FileVersion } from "./file-version.ts";
import { KerberosMissing } from "./kerberos.ts";

/** Sooner than for a password: a KDC that is out of reach looks the same, and comes back. Four tries in half an hour. */
const FIRST_WAIT_MS = 2 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * How often tickets are asked for, by all ways of one process: an old key in a keytab is a wrong password to the KDC, and
 * the account is locked. The library does not tell that from other failures, nor whether it used a key: it knows keytabs
 * that no variable names (`default_client_keytab_name`), and takes one as well where a ticket cache has expired. So each
 * failure makes us wait, until the files are others.
 */
export class KerberosTickets {
  readonly #env: Environment;
  readonly #now: () => number;
  readonly #keytab: FileVersion;
  readonly #cache: FileVersion;
  /** Resolves when it is over, in whatever way. */
  #underWay: Promise<void> | undefined;
  #failures = 0;
  #failedWith = "";
  #untilMs = 0;

  constructor(env: Environment = process.env, now: () => number = () => performance.now()) {
    this.#env = env;
    this.#now = now;
    this.#keytab = new FileVersion(pathOf(env["KRB5_CLIENT_KTNAME"] ?? ""));
    this.#cache = new FileVersion(pathOf(env["KRB5CCNAME"] || `/tmp/krb5cc_${process.geteuid?.()}`));
  }

  /**
   * One at a time: several that fail at once would be several tries, and each holds a thread of libuv's few. Who comes
   * meanwhile waits for its end: a failure is that of all, and a weaker scheme has its turn. Who is aborted waits no
   * longer; work of its own that has begun goes on, because the library cannot be told to stop.
   */
  async take<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    while (this.#underWay !== undefined) await untilAborted(this.#underWay, signal);
    signal.throwIfAborted();
    const taken = this.#try(work, signal);
    this.#underWay = taken.then(this.#onEnd, this.#onEnd);
    return untilAborted(taken, signal);
  }

  readonly #onEnd = (): void => {
    this.#underWay = undefined;
  };

  async #try<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const files = await this.#files();
    signal.throwIfAborted();
    if (files !== this.#failedWith) this.#failures = 0;
    else if (this.#now() < this.#untilMs) throw this.#tooSoon();
    try {
      const done = await work();
      this.#failures = 0;
      this.#untilMs = 0;
      return done;
    } catch (error) {
      // Not as they were before: the library notes in the ticket cache when it has failed.
      this.#failedWith = await this.#files();
      this.#untilMs = this.#now() + Math.min(FIRST_WAIT_MS * 2 ** this.#failures, LONGEST_WAIT_MS);
      this.#failures++;
      throw error;
    }
  }

  #tooSoon(): KerberosMissing {
    const minutes = Math.ceil((this.#untilMs - this.#now()) / 60_000);
    const keytab = this.#env["KRB5_CLIENT_KTNAME"] || undefined;
    const who = keytab === undefined ? "this machine" : `the keytab ${keytab}`;
    const cure =
      keytab === undefined
        ? "run kinit, or name a keytab in KRB5_CLIENT_KTNAME"
        : "check that its key is the account's, with kinit -k -t";
    return new KerberosMissing(
      `${who} gave no Kerberos ticket and is not tried again for ${minutes} min, or until the keytab or the ticket cache is another, so that no account is locked: ${cure}`,
    );
  }

  /** What they hold, as far as one can tell without a look. */
  async #files(): Promise<string> {
    return (await Promise.all([this.#keytab.read(), this.#cache.read()])).join(", ");
  }
}

/** Of a file that the library knows by `FILE:/path` or by its path; what is in no file is never there. */
function pathOf(name: string): string {
  return name.replace(/^(?:FILE|DIR):/, "");
}
