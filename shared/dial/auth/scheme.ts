import type { Challenge } from "./challenges.ts";

export interface Credentials {
  readonly user: string;
  readonly password: string;
}

/** What a request brings along for the proxy. */
export interface Authorization {
  /** Of `Proxy-Authorization`. */
  readonly value: string;
  /** The part of it that nobody else may see, should the proxy repeat it. */
  readonly secret: string;
}

/** One scheme of authentication in use with one proxy, for all legs of one attempt. */
export interface Scheme {
  readonly name: "Negotiate" | "Digest" | "Basic";
  authorize(challenge: Challenge): Promise<Authorization>;
  /** After a 407 to what was authorized: the challenge to answer next; `undefined`: it was a refusal. */
  goesOn(challenges: readonly Challenge[]): Challenge | undefined;
  /** Does the proxy prove in its last answer who it is? A sentence if it tried and failed. */
  doubts?(challenges: readonly Challenge[]): Promise<string | undefined>;
}

/** What is said of a proxy that wants a password and is sent none, whether or not there is one. */
export const WITHHELD =
  "wants a password, and is sent none because a PAC script fetched without TLS named it: give the proxy by --proxy, or the script by https://";

/** The cure for a password that a proxy does not take. */
export const CHECK_PASSWORD = "check the user and the password in --proxy-credentials-file or in the proxy's URL";
