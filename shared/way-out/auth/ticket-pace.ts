import { statSync } from "node:fs";
import { KerberosMissing } from "./kerberos.ts";

/** Sooner than for a password: a KDC that is out of reach looks the same, and comes back. Four tries in half an hour. */
const FIRST_WAIT_MS = 2 * 60_000;
const LONGEST_WAIT_MS = 30 * 60_000;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * How often tickets are asked for by the key of a keytab, by all ways of one process: an old key is a wrong password to
 * the KDC, and the account is locked. The library does not tell that from other failures, so each makes us wait, until
 * the files are others. A ticket cache alone holds no key, and is tried each time.
 */
export class TicketPace {
  readonly #env: Environment;
  readonly #now: () => number;
  #last: Promise<unknown> = Promise.resolve();
  #failures = 0;
  #failedWith = "";
  #untilMs = 0;

  constructor(env: Environment = process.env, now: () => number = () => performance.now()) {
    this.#env = env;
    this.#now = now;
  }

  /** One after another: several that fail at once would be several tries. */
  take<T>(work: () => Promise<T>): Promise<T> {
    const taken = this.#last.then(() => this.#try(work));
    this.#last = taken.catch(() => {});
    return taken;
  }

  async #try<T>(work: () => Promise<T>): Promise<T> {
    const files = this.#files();
    if (files !== this.#failedWith) this.#failures = 0;
    else if (files !== "" && this.#now() < this.#untilMs) throw this.#tooSoon();
    try {
      const done = await work();
      this.#failures = 0;
      return done;
    } catch (error) {
      this.#failedWith = files;
      this.#untilMs = this.#now() + Math.min(FIRST_WAIT_MS * 2 ** this.#failures, LONGEST_WAIT_MS);
      this.#failures++;
      throw error;
    }
  }

  #tooSoon(): KerberosMissing {
    const minutes = Math.ceil((this.#untilMs - this.#now()) / 60_000);
    return new KerberosMissing(
      `the keytab ${this.#env["KRB5_CLIENT_KTNAME"]} gave no Kerberos ticket and is not tried again for ${minutes} min, or until it is another, so that no account is locked: check that its key is the account's, with kinit -k -t`,
    );
  }

  /** What they hold, as far as one can tell without a look; empty: no key is in use. */
  #files(): string {
    const keytab = this.#env["KRB5_CLIENT_KTNAME"] ?? "";
    return keytab === "" ? "" : `${versionOf(keytab)} ${versionOf(this.#env["KRB5CCNAME"] ?? "")}`;
  }
}

/** Of a file that the library knows by `FILE:/path` or by its path. */
function versionOf(name: string): string {
  const { ino, size, mtimeMs } = statSync(name.replace(/^FILE:/, ""), { throwIfNoEntry: false }) ?? {};
  return `${name} ${ino} ${size} ${mtimeMs}`;
}
