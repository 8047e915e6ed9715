import { createHash, randomBytes } from "node:crypto";
import type { Challenge } from "./challenges.ts";
import {
  type AuthExchange,
  type Authorization,
  type AuthScheme,
  CHECK_PASSWORD,
  NoCredentials,
  type ProxyCredentials,
} from "./scheme.ts";

/** Basic (RFC 7617), always in UTF-8, because a proxy cannot ask for another character set. */
export const BASIC: AuthScheme = {
  name: "Basic",
  sends: "password",
  refused: `refuses the user or the password (Basic): ${CHECK_PASSWORD}`,

  pick: (challenges) => challenges.find(({ scheme }) => scheme === "basic"),

  async begin({ credentials }) {
    const given = await credentials();
    if (given === undefined) throw new NoCredentials();
    const secret = Buffer.from(`${given.user}:${given.password}`, "utf8").toString("base64");
    return { authorize: async () => ({ value: `Basic ${secret}`, secret }), next: () => undefined };
  },
};

/** OpenSSL's name for each algorithm, weakest first: proxies offer MD5 for old clients (RFC 7616 §3.7). */
const HASHES = new Map([
  ["md5", "md5"],
  ["sha-256", "sha256"],
  ["sha-512-256", "sha512-256"],
]);

/** Digest (RFC 7616): the proxy gets a proof of the password for one request and one nonce. */
export const DIGEST: AuthScheme = {
  name: "Digest",
  sends: "digest of the password",
  refused: `refuses the user or the password (Digest): ${CHECK_PASSWORD}`,
  // Several proxies behind one address that do not share their nonces look like this, too.
  endless:
    "calls every nonce stale, also the one that it has just given (Digest), and says nothing of the password: ask its administrators to look at how long its nonces are good, at its clock, and whether all proxies behind this address know them",

  pick: pickDigest,
  whyNot: digestProblem,

  async begin({ credentials, authority }) {
    const given = await credentials();
    if (given === undefined) throw new NoCredentials();
    return new DigestExchange(authority, given);
  },
};

/** The strongest Digest challenge that can be answered. */
function pickDigest(challenges: readonly Challenge[]): Challenge | undefined {
  const strengths = [...HASHES.keys()];
  const usable = challenges.filter((challenge) => readChallenge(challenge) !== undefined);
  const strength = (challenge: Challenge): number => strengths.indexOf(readChallenge(challenge)?.family ?? "");
  return usable.sort((one, other) => strength(other) - strength(one))[0];
}

/** Number and length of the proxy's algorithm names in a sentence. */
const MAX_NAMED = 4;
const MAX_NAME = 30;

/** Why none of the Digest challenges can be answered; `undefined` if there are none. */
function digestProblem(challenges: readonly Challenge[]): string | undefined {
  const offers = challenges.filter(({ scheme }) => scheme === "digest");
  if (offers.length === 0) return undefined;
  const unknown = new Set(offers.filter((offer) => algorithmOf(offer).hash === undefined).map(algorithmName));
  if (unknown.size === 0) return 'its Digest has no realm, no nonce, or a qop without "auth"';
  const known = [...HASHES.keys()].map((family) => family.toUpperCase());
  return `Digest is known here with ${known.join(", ")}, and not with ${[...unknown].slice(0, MAX_NAMED).join(", ")}`;
}

function algorithmName({ parameters }: Challenge): string {
  return `"${parameters.get("algorithm")?.slice(0, MAX_NAME)}"`;
}

class DigestExchange implements AuthExchange {
  readonly #authority: string;
  readonly #credentials: ProxyCredentials;
  #nonce: string | undefined;
  #count = 0;

  constructor(authority: string, credentials: ProxyCredentials) {
    this.#authority = authority;
    this.#credentials = credentials;
  }

  async authorize(challenge: Challenge): Promise<Authorization> {
    const nonce = challenge.parameters.get("nonce");
    this.#count = nonce === this.#nonce ? this.#count + 1 : 1;
    this.#nonce = nonce;
    const cnonce = randomBytes(16).toString("base64url");
    const request = { method: "CONNECT", uri: this.#authority, cnonce, count: this.#count };
    return digestAuthorization(challenge, { ...request, ...this.#credentials });
  }

  /** `stale` means that the nonce is too old; the password was not checked (RFC 7616 §3.3). */
  next(challenges: readonly Challenge[]): Challenge | undefined {
    const challenge = pickDigest(challenges);
    return challenge?.parameters.get("stale")?.toLowerCase() === "true" ? challenge : undefined;
  }
}

interface DigestRequest extends ProxyCredentials {
  readonly method: string;
  readonly uri: string;
  readonly cnonce: string;
  /** Number of requests with this nonce, including this one. */
  readonly count: number;
}

/** The answer to a challenge that `pickDigest` has found (RFC 7616 §3.4). */
export function digestAuthorization(challenge: Challenge, request: DigestRequest): Authorization {
  const fit = readChallenge(challenge);
  if (fit === undefined) throw new TypeError("no Digest that can be computed");
  const { realm, nonce, hash, session, qop } = fit;
  const { user, password, method, uri, cnonce } = request;
  const nc = request.count.toString(16).padStart(8, "0");
  // The proxy's parameters are hashed as bytes, one for each character of the header. Our own values are UTF-8.
  const digest = (...parts: readonly Buffer[]): string =>
    createHash(hash)
      .update(Buffer.concat(parts.flatMap((part, index) => (index === 0 ? [part] : [COLON, part]))))
      .digest("hex");
  const secret = digest(utf8(user), bytes(realm), utf8(password));
  const a1 = session ? digest(utf8(secret), bytes(nonce), utf8(cnonce)) : secret;
  const a2 = digest(utf8(method), utf8(uri));
  const middle = qop ? [bytes(nonce), utf8(nc), utf8(cnonce), utf8("auth")] : [bytes(nonce)];
  const response = digest(utf8(a1), ...middle, utf8(a2));
  const { parameters } = challenge;
  const algorithm = parameters.get("algorithm");
  const opaque = parameters.get("opaque");
  const hashed = parameters.get("userhash")?.toLowerCase() === "true";
  const fields = [
    hashed ? `username=${quoted(digest(utf8(user), bytes(realm)))}` : username(user),
    `realm=${quoted(realm)}`,
    `uri=${quoted(uri)}`,
    ...(algorithm === undefined ? [] : [`algorithm=${algorithm}`]),
    `nonce=${quoted(nonce)}`,
    ...(qop ? [`nc=${nc}`, "qop=auth"] : []),
    ...(qop || session ? [`cnonce=${quoted(cnonce)}`] : []),
    `response=${quoted(response)}`,
    ...(opaque === undefined ? [] : [`opaque=${quoted(opaque)}`]),
    ...(hashed ? ["userhash=true"] : []),
  ];
  // The response allows guesses of the password without the proxy.
  return { value: `Digest ${fields.join(", ")}`, secret: response };
}

interface DigestChallenge {
  readonly realm: string;
  readonly nonce: string;
  /** The name in RFC 7616. */
  readonly family: string;
  /** The name in OpenSSL. */
  readonly hash: string;
  readonly session: boolean;
  /** Without qop the response has no count (RFC 2069). */
  readonly qop: boolean;
}

function algorithmOf({ parameters }: Challenge) {
  const [, family = "", suffix] = /^(.*?)(-sess)?$/.exec(parameters.get("algorithm")?.toLowerCase() ?? "md5") ?? [];
  return { family, hash: HASHES.get(family), session: suffix !== undefined };
}

function readChallenge(challenge: Challenge): DigestChallenge | undefined {
  const { scheme, parameters } = challenge;
  const realm = parameters.get("realm");
  const nonce = parameters.get("nonce");
  const { family, hash, session } = algorithmOf(challenge);
  const qops = parameters
    .get("qop")
    ?.toLowerCase()
    .split(/[ \t,]+/);
  if (scheme !== "digest" || realm === undefined || nonce === undefined || hash === undefined) return undefined;
  if (qops !== undefined && !qops.includes("auth")) return undefined;
  return { realm, nonce, family, hash, session, qop: qops !== undefined };
}

/** A user name outside ASCII is sent in the form of RFC 8187. In neither form can it end the field. */
function username(user: string): string {
  if (/^[\x20-\x7e]*$/.test(user)) return `username=${quoted(user)}`;
  const encoded = encodeURIComponent(user).replace(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16)}`);
  return `username*=UTF-8''${encoded}`;
}

function quoted(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

const COLON = Buffer.from(":");

function utf8(text: string): Buffer {
  return Buffer.from(text, "utf8");
}

function bytes(text: string): Buffer {
  return Buffer.from(text, "latin1");
}
