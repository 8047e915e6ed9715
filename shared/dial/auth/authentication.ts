import { type Challenge, parseChallenges } from "./challenges.ts";
import { NEGOTIATE } from "./negotiate.ts";
import { BASIC, DIGEST } from "./password.ts";
import {
  type AuthContext,
  type AuthExchange,
  type Authorization,
  type AuthScheme,
  NoCredentials,
  WITHHELD,
} from "./scheme.ts";

/**
 * All authentication schemes, strongest first. `Authentication` uses the first one that the proxy offers and that this
 * process has credentials for. A new scheme is:
 *
 * - a file beside this one that exports an `AuthScheme`, its test, and a row here;
 * - a row of `OFFERS` in `proxy-routes-unverified.test.ts`, seeds and `words` in `fuzz/targets/proxy-challenges.ts`;
 * - its name in `docs/corporate-networks.md` and `docs/architecture.md`;
 * - if it needs a package: that package in `scripts/structure-rules.mjs`, and a decision about it.
 *
 * If it sends neither a password nor a ticket, it needs a new value of `AuthScheme.sends`, an option in
 * `agent/context/options.ts` (then `npm run docs`), and other words wherever refusals speak of passwords and tickets:
 * in this folder, in `http-proxy.ts`, in the rows `proxy_auth_*` of `shared/faults/fault-rows.ts`. The login of SOCKS
 * is in `socks-proxy.ts`.
 */
const SCHEMES: readonly AuthScheme[] = [NEGOTIATE, DIGEST, BASIC];

/** Why a 407 cannot be answered. The message is the end of a sentence that begins with the proxy. */
export class AuthenticationFailed extends Error {
  /** There are no credentials, they were refused, no scheme can be used, or they must not be sent to this proxy. */
  readonly why: "required" | "refused" | "unsupported" | "withheld";

  constructor(why: AuthenticationFailed["why"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.why = why;
  }
}

interface Chosen {
  readonly scheme: AuthScheme;
  readonly exchange: AuthExchange;
  readonly challenge: Challenge;
}

/** Maximum length of a library's message in a sentence. */
const MAX_MESSAGE = 200;

/** Answers the 407s of one attempt, by the strongest scheme that can be used, and by no other. */
export class Authentication {
  readonly #context: AuthContext;
  #chosen: Chosen | undefined;
  #offered = "";

  constructor(context: AuthContext) {
    this.#context = context;
  }

  /** The schemes of the first 407, for a log. */
  get offered(): string {
    return this.#offered;
  }

  /** The scheme in use; `undefined` before the first 407. */
  get scheme(): AuthScheme | undefined {
    return this.#chosen?.scheme;
  }

  /** The authorization for the `Proxy-Authenticate` fields of a 407. Rejects with `AuthenticationFailed`. */
  async answer(fields: readonly string[]): Promise<Authorization> {
    const challenges = parseChallenges(fields);
    if (this.#chosen === undefined) {
      this.#offered = offeredSchemes(challenges);
      return this.#choose(challenges);
    }
    const { scheme, exchange } = this.#chosen;
    const challenge = exchange.next(challenges);
    if (challenge === undefined) throw new AuthenticationFailed("refused", scheme.refused);
    return this.#authorize({ scheme, exchange, challenge });
  }

  /**
   * Basic for a proxy that has named no scheme (RFC 7617 §2): some refuse, or close, until they see a password.
   * `undefined`: there is none, or it must not be sent now.
   */
  async unasked(): Promise<Authorization | undefined> {
    this.#offered = "nothing";
    try {
      const challenge = { scheme: "basic", token: undefined, parameters: new Map<string, string>() };
      return await this.#authorize({ scheme: BASIC, exchange: await BASIC.begin(this.#context), challenge });
    } catch (error) {
      if (error instanceof NoCredentials) return undefined;
      throw error;
    }
  }

  /** The failure of a proxy that goes on asking after the last request of an attempt. */
  get endless(): AuthenticationFailed {
    const message = this.scheme?.endless;
    return message === undefined
      ? new AuthenticationFailed("refused", "keeps asking for credentials after each answer")
      : new AuthenticationFailed("unsupported", message);
  }

  /** Another authorization for a new connection; `undefined` if the last one was bound to the old connection. */
  async again(): Promise<Authorization | undefined> {
    if (this.#chosen === undefined || this.#chosen.challenge.token !== undefined) return undefined;
    return this.#authorize(this.#chosen);
  }

  /** Verifies the proxy's proof in its final answer, if there is one. Gives the end of a sentence if that failed. */
  async verify(fields: readonly string[]): Promise<string | undefined> {
    return this.#chosen?.exchange.verify?.(parseChallenges(fields));
  }

  async #choose(challenges: readonly Challenge[]): Promise<Authorization> {
    const unused: { readonly scheme: AuthScheme; readonly error: NoCredentials }[] = [];
    for (const scheme of SCHEMES) {
      const challenge = scheme.pick(challenges);
      if (challenge === undefined) continue;
      try {
        return await this.#authorize({ scheme, exchange: await scheme.begin(this.#context), challenge });
      } catch (error) {
        if (!(error instanceof NoCredentials)) throw error;
        unused.push({ scheme, error });
      }
    }
    if (this.#context.isUnverified && unused.length > 0) throw new AuthenticationFailed("withheld", WITHHELD);
    const reasons = unused.map(({ error }) => error.message).filter((message) => message !== "");
    const cause = unused[0]?.error.cause;
    if (unused.some(({ scheme }) => scheme.sends !== "ticket")) {
      const offer = [`it offers ${this.#offered}`, ...reasons].join("; ");
      const message = `wants to know who we are: give user:password in --proxy-credentials-file or in the proxy's URL (${offer})`;
      throw new AuthenticationFailed("required", message, { cause });
    }
    const why = [...reasons, ...unusableSchemes(challenges)].join("; ");
    const message = `wants a kind of authentication that cannot be done here: it offers ${this.#offered}`;
    throw new AuthenticationFailed("unsupported", why === "" ? message : `${message}: ${why}`, { cause });
  }

  async #authorize(next: Chosen): Promise<Authorization> {
    try {
      const authorization = await next.exchange.authorize(next.challenge);
      this.#chosen = next;
      return authorization;
    } catch (error) {
      if (error instanceof NoCredentials && this.#chosen === undefined) throw error;
      this.#context.signal.throwIfAborted();
      const message = `cannot be answered by ${next.scheme.name}: ${(error as Error).message.slice(0, MAX_MESSAGE)}`;
      throw new AuthenticationFailed("unsupported", message, { cause: error });
    }
  }
}

const NAMES = new Map([...SCHEMES.map(({ name }) => name), "NTLM"].map((name) => [name.toLowerCase(), name]));
const MAX_NAMED = 6;
const MAX_NAME = 20;

/**
 * The schemes that a proxy offers, for a sentence. Names come from the proxy, so their number and length are limited.
 */
function offeredSchemes(challenges: readonly Challenge[]): string {
  const names = [...new Set(challenges.map(({ scheme }) => NAMES.get(scheme) ?? scheme.slice(0, MAX_NAME)))];
  return names.length === 0 ? "none that can be read" : names.slice(0, MAX_NAMED).join(", ");
}

/** Why none of the offered schemes can be used, and what to do. */
function unusableSchemes(challenges: readonly Challenge[]): readonly string[] {
  const reasons = SCHEMES.map((scheme) => scheme.whyNot?.(challenges)).filter((reason) => reason !== undefined);
  const offersNtlm = challenges.some(({ scheme }) => scheme === "ntlm");
  return offersNtlm ? [...reasons, "for NTLM let px or cntlm run on this machine and name that with --proxy"] : reasons;
}
