import { Basic } from "./basic.ts";
import { type Challenge, parseChallenges } from "./challenges.ts";
import { Digest, digestProblem, pickDigest } from "./digest.ts";
import { KerberosMissing, type LoadKerberos } from "./kerberos.ts";
import type { KerberosTickets } from "./kerberos-tickets.ts";
import { Negotiate, negotiateOf } from "./negotiate.ts";
import { type Authorization, CHECK_PASSWORD, type Credentials, type Scheme, WITHHELD } from "./scheme.ts";

/** Why a proxy cannot be answered. The message is the end of a sentence that begins with the proxy. */
export class AuthenticationFailed extends Error {
  /** Nobody was given; was given and not believed; cannot be done here; must not be sent to this proxy. */
  readonly why: "required" | "refused" | "unsupported" | "withheld";

  constructor(why: AuthenticationFailed["why"], message: string, options?: ErrorOptions) {
    super(message, options);
    this.why = why;
  }
}

export interface AuthenticationOptions {
  readonly proxyHost: string;
  /** `host:port` that CONNECT asks for. */
  readonly authority: string;
  /** Asked once, when the proxy first wants to know. */
  readonly credentials: () => Promise<Credentials | undefined>;
  /** See `ProxyRoute`: a ticket is not even asked for. `credentials` gives what may be sent all the same. */
  readonly isNamedInClear: boolean;
  /** Absent: no Kerberos here. */
  readonly negotiate: KerberosTickets | undefined;
  readonly loadKerberos: LoadKerberos;
  readonly signal: AbortSignal;
}

/** What one attempt says to a proxy that answers 407: by the strongest scheme that it offers and we can do, and by no other. */
export class Authentication {
  readonly #options: AuthenticationOptions;
  #using: { readonly scheme: Scheme; readonly challenge: Challenge } | undefined;

  #offered = "";

  constructor(options: AuthenticationOptions) {
    this.#options = options;
  }

  /** What the proxy has offered first, as people write it. */
  get offered(): string {
    return this.#offered;
  }

  /** By which scheme; `undefined`: nothing was asked yet. */
  get scheme(): Scheme["name"] | undefined {
    return this.#using?.scheme.name;
  }

  /** What the next leg says to the `Proxy-Authenticate` fields of a 407, or `AuthenticationFailed`. */
  async answer(fields: readonly string[]): Promise<Authorization> {
    const challenges = parseChallenges(fields);
    if (this.#using === undefined) {
      this.#offered = offered(challenges);
      return this.#begin(challenges);
    }
    const { scheme } = this.#using;
    const challenge = scheme.goesOn(challenges);
    if (challenge === undefined) throw new AuthenticationFailed("refused", REFUSED[scheme.name]);
    return this.#say(scheme, challenge);
  }

  /** Of a proxy that has heard all we say in one attempt, and goes on. */
  get endless(): AuthenticationFailed {
    return this.scheme === "Digest"
      ? new AuthenticationFailed("unsupported", ALWAYS_STALE)
      : new AuthenticationFailed("refused", "asks for ever more proofs of who we are");
  }

  /** The same once more, for a new connection; `undefined`: what was said belonged to the old one. */
  async again(): Promise<Authorization | undefined> {
    if (this.#using === undefined || this.#using.challenge.token !== undefined) return undefined;
    return this.#say(this.#using.scheme, this.#using.challenge);
  }

  /** A sentence if the proxy's last answer tried to prove who it is, and failed. */
  async doubts(fields: readonly string[]): Promise<string | undefined> {
    return this.#using?.scheme.doubts?.(parseChallenges(fields));
  }

  async #begin(challenges: readonly Challenge[]): Promise<Authorization> {
    const { proxyHost, authority, isNamedInClear, loadKerberos, signal } = this.#options;
    const negotiate = isNamedInClear ? undefined : this.#options.negotiate;
    let problem: unknown;
    const ticketWanted = negotiateOf(challenges);
    if (ticketWanted !== undefined && negotiate !== undefined) {
      try {
        return await this.#say(
          new Negotiate(proxyHost, { tickets: negotiate, load: loadKerberos, signal }),
          ticketWanted,
        );
      } catch (error) {
        signal.throwIfAborted();
        // No ticket is no credentials for this scheme: perhaps there are some for a weaker one.
        problem = (error as AuthenticationFailed).cause;
      }
    }
    const digest = pickDigest(challenges);
    const basic = challenges.find(({ scheme }) => scheme === "basic");
    const weaker = digest ?? basic;
    if (isNamedInClear && weaker === undefined && ticketWanted !== undefined) throw withheld();
    if (weaker === undefined) throw unsupported(challenges, negotiate !== undefined, problem);
    const credentials = await this.#options.credentials();
    if (credentials === undefined) throw isNamedInClear ? withheld() : required(challenges, problem);
    const request = { method: "CONNECT", uri: authority };
    return this.#say(digest === undefined ? new Basic(credentials) : new Digest(request, credentials), weaker);
  }

  async #say(scheme: Scheme, challenge: Challenge): Promise<Authorization> {
    try {
      const authorization = await scheme.authorize(challenge);
      this.#using = { scheme, challenge };
      return authorization;
    } catch (error) {
      const message = `cannot be answered by ${scheme.name}: ${(error as Error).message.slice(0, MAX_SAID)}`;
      throw new AuthenticationFailed("unsupported", message, { cause: error });
    }
  }
}

const REFUSED = {
  Basic: `refuses the user or the password (Basic): ${CHECK_PASSWORD}`,
  Digest: `refuses the user or the password (Digest): ${CHECK_PASSWORD}`,
  Negotiate:
    "refuses the Kerberos ticket (Negotiate): check that the proxy's host name is the one of its service principal, that both clocks are right, and that the user may use it",
} as const satisfies Record<Scheme["name"], string>;

/** Several proxies that share an address and not their nonces look like this, too. */
const ALWAYS_STALE =
  "calls every nonce stale, also the one that it has just given (Digest), and says nothing of the password: ask its administrators to look at how long its nonces are good, at its clock, and whether all proxies behind this address know them";

function withheld(): AuthenticationFailed {
  return new AuthenticationFailed("withheld", WITHHELD);
}

function required(challenges: readonly Challenge[], problem: unknown): AuthenticationFailed {
  return new AuthenticationFailed(
    "required",
    `wants to know who we are: give user:password in --proxy-credentials-file or in the proxy's URL (it offers ${offered(challenges)}${kerberosProblem(problem)})`,
    { cause: problem },
  );
}

function unsupported(
  challenges: readonly Challenge[],
  kerberosWanted: boolean,
  problem: unknown,
): AuthenticationFailed {
  const has = (scheme: string): boolean => challenges.some((challenge) => challenge.scheme === scheme);
  const digest = digestProblem(challenges);
  const cures = [
    ...(digest === undefined ? [] : [digest]),
    ...(has("negotiate") && !kerberosWanted ? ["Kerberos is not set up here"] : []),
    ...(has("ntlm") ? ["for NTLM let px or cntlm run on this machine and name that with --proxy"] : []),
  ];
  return new AuthenticationFailed(
    "unsupported",
    `wants a kind of authentication that cannot be done here: it offers ${offered(challenges)}${kerberosProblem(problem)}${cures.length > 0 ? `: ${cures.join("; ")}` : ""}`,
    { cause: problem },
  );
}

function kerberosProblem(problem: unknown): string {
  if (problem === undefined) return "";
  const { message } = problem as Error;
  return problem instanceof KerberosMissing
    ? `; ${message}`
    : `; ${NO_TICKET} (GSS-API says: ${message.slice(0, MAX_SAID)})`;
}

/** Of a library's words, which may hold names and paths without end. */
const MAX_SAID = 200;

/** What the library says is the same for all of these, and of use to few: that it cannot find mechanisms to negotiate. */
const NO_TICKET =
  "there is no Kerberos ticket for it: run kinit, or name a keytab in KRB5_CLIENT_KTNAME; with one of them, check that it is still good, that the proxy is called by the name of its service, and krb5.conf";

/** How people write them, and how a stranger's own word for one is kept short. */
const NAMES = new Map([
  ["ntlm", "NTLM"],
  ["negotiate", "Negotiate"],
  ["digest", "Digest"],
  ["basic", "Basic"],
]);
const MOST_NAMED = 6;

function offered(challenges: readonly Challenge[]): string {
  const schemes = [...new Set(challenges.map(({ scheme }) => NAMES.get(scheme) ?? scheme.slice(0, 20)))];
  return schemes.length === 0 ? "none that can be read" : schemes.slice(0, MOST_NAMED).join(", ");
}
