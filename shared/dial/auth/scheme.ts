import type { Challenge } from "./challenges.ts";
import type { KerberosTickets, LoadKerberos } from "./kerberos.ts";

/** A user and a password. They are never logged, and sent only to the proxy that they are for. */
export interface ProxyCredentials {
  readonly user: string;
  readonly password: string;
}

/** The context of a scheme in one attempt. */
export interface AuthContext {
  readonly proxyHost: string;
  /** The `host:port` of the CONNECT request. */
  readonly authority: string;
  /** The user and the password for this proxy, if there are any. */
  readonly credentials: () => Promise<ProxyCredentials | undefined>;
  /**
   * The proxy comes from a source that anybody on the network could have written (see `ProxyRoute`). A scheme that
   * sends anything else than `credentials` must then throw `NoCredentials`, as Negotiate does.
   */
  readonly isUnverified: boolean;
  /** Absent if Kerberos is not used here. */
  readonly tickets: KerberosTickets | undefined;
  readonly loadKerberos: LoadKerberos;
  readonly signal: AbortSignal;
}

/** A value for `Proxy-Authorization`. */
export interface Authorization {
  readonly value: string;
  /** The part of the value that must not appear in a log, in case the proxy repeats it. */
  readonly secret: string;
}

/** An authentication scheme (RFC 9110 §11.1). `SCHEMES` lists all of them. */
export interface AuthScheme {
  /** As its RFC writes it, for logs. */
  readonly name: string;
  /** The secret that the proxy gets. A password that it refuses must not be sent repeatedly. */
  readonly sends: "password" | "digest of the password" | "ticket";
  /** The end of a sentence about a proxy that has refused an authorization of this scheme. */
  readonly refused: string;
  /** The end of a sentence about a proxy that asks for another authorization after each one, without a refusal. */
  readonly endless?: string;
  /** The best challenge that this scheme can answer. */
  pick(challenges: readonly Challenge[]): Challenge | undefined;
  /** Why `pick` has found none, if the proxy offers this scheme. */
  whyNot?(challenges: readonly Challenge[]): string | undefined;
  /** Begins the exchange of one attempt. Rejects with `NoCredentials`. */
  begin(context: AuthContext): Promise<AuthExchange>;
}

/** All authorizations of one scheme in one attempt. */
export interface AuthExchange {
  /** Rejects with `NoCredentials` if there is no ticket. */
  authorize(challenge: Challenge): Promise<Authorization>;
  /** The challenge to answer after another 407; `undefined` if that was a refusal. */
  next(challenges: readonly Challenge[]): Challenge | undefined;
  /** Verifies the proxy's proof of its own identity, if it sent one. Gives the end of a sentence if that failed. */
  verify?(challenges: readonly Challenge[]): Promise<string | undefined>;
}

/** This process has no credentials for a scheme, so a weaker scheme may be tried. `message` may be empty. */
export class NoCredentials extends Error {}

/** The end of a sentence about a proxy that asks for credentials on an unverified route. */
export const WITHHELD =
  "wants a password, and is sent none because a PAC script fetched without TLS named it: give the proxy by --proxy, or the script by https://";

/** The advice after a refused password. */
export const CHECK_PASSWORD = "check the user and the password in --proxy-credentials-file or in the proxy's URL";
