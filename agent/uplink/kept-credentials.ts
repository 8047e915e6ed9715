import type { Logger } from "../../shared/runtime/logger.ts";
import { type CredentialFiles, type Credentials, endOf, readCredentials } from "./credentials.ts";

/**
 * What an agent shows to its servers: what the files hold, read anew each time. While that cannot be used it is what they
 * held before, as long as that is valid; nor is what has ended already, or has not begun, taken in place of what is valid
 * (design: "Trust": a broken new file keeps the old one and says so).
 */
export class KeptCredentials {
  readonly #files: CredentialFiles;
  readonly #log: Logger;
  #held: Credentials | undefined;
  #fault: Error | undefined;

  constructor(files: CredentialFiles, log: Logger) {
    this.#files = files;
    this.#log = log;
  }

  /** Throws a sentence when the files cannot be used and nothing valid was read before. */
  current(): Credentials {
    if (!this.refresh() && !lasts(this.#held)) throw this.#fault;
    return this.#held as Credentials;
  }

  /** What was read last and could be used. */
  get held(): Credentials | undefined {
    return this.#held;
  }

  /** Can the files be used as they are now? Why not is said once. */
  refresh(): boolean {
    try {
      const read = readCredentials(this.#files);
      this.#mustNotBeWorse(read);
      this.#held = read;
      this.#fault = undefined;
      return true;
    } catch (error) {
      const { message: reason } = error as Error;
      if (this.#held !== undefined && reason !== this.#fault?.message) {
        const fate = lasts(this.#held) ? "stay" : "have expired";
        this.#log.error({ reason }, `new credentials are not usable, the old ones ${fate}`);
      }
      this.#fault = error as Error;
      return false;
    }
  }

  #mustNotBeWorse(read: Credentials): void {
    if (!lasts(this.#held)) return;
    if (!lasts(read)) throw endedError(read);
    if (!hasBegun(read) && hasBegun(this.#held)) throw earlyError(read);
  }
}

function endedError(credentials: Credentials): Error {
  return new Error(`the certificate or token in the files ended on ${endOf(credentials)?.toISOString()}`);
}

function earlyError({ notBefore }: Credentials): Error {
  return new Error(
    `the certificate in the files is not valid before ${notBefore?.toISOString()}: from then on it is used`,
  );
}

function lasts(credentials: Credentials | undefined): credentials is Credentials {
  if (credentials === undefined) return false;
  const end = endOf(credentials);
  return end === undefined || end > new Date();
}

function hasBegun({ notBefore }: Credentials): boolean {
  return notBefore === undefined || notBefore <= new Date();
}
