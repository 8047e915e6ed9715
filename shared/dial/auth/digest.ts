import { createHash, randomBytes } from "node:crypto";
import type { Challenge } from "./challenges.ts";
import type { Authorization, Credentials, Scheme } from "./scheme.ts";

/** Weakest first: MD5 is what proxies offer beside it to clients that know nothing else (RFC 7616 §3.7). */
const HASHES = new Map([
  ["md5", "md5"],
  ["sha-256", "sha256"],
  ["sha-512-256", "sha512-256"],
]);

/** The strongest of the Digest challenges that can be answered; `undefined`: there is none. */
export function pickDigest(challenges: readonly Challenge[]): Challenge | undefined {
  const strengths = [...HASHES.keys()];
  const able = challenges.filter((challenge) => readChallenge(challenge) !== undefined);
  const strength = (challenge: Challenge): number => strengths.indexOf(readChallenge(challenge)?.family ?? "");
  return able.sort((one, other) => strength(other) - strength(one))[0];
}

/** Why none of the Digest challenges can be answered, where none can; `undefined`: there are none. */
export function digestProblem(challenges: readonly Challenge[]): string | undefined {
  const offers = challenges.filter(({ scheme }) => scheme === "digest");
  if (offers.length === 0) return undefined;
  const unknown = new Set(offers.filter((offer) => algorithmOf(offer).hash === undefined).map(algorithmName));
  if (unknown.size === 0) return 'its Digest has no realm, no nonce, or a qop without "auth"';
  const known = [...HASHES.keys()].map((family) => family.toUpperCase());
  return `Digest is known here with ${known.join(", ")}, and not with ${[...unknown].slice(0, MOST_NAMED).join(", ")}`;
}

/** Of a stranger's algorithms, and characters of each. */
const MOST_NAMED = 4;
const LONGEST_NAME = 30;

function algorithmName({ parameters }: Challenge): string {
  return `"${parameters.get("algorithm")?.slice(0, LONGEST_NAME)}"`;
}

/** Digest (RFC 7616): the password stays here; what is sent proves it for one request of this proxy's nonce. */
export class Digest implements Scheme {
  readonly name = "Digest";
  readonly #request: { readonly method: string; readonly uri: string };
  readonly #credentials: Credentials;
  #nonce: string | undefined;
  #count = 0;

  constructor(request: { readonly method: string; readonly uri: string }, credentials: Credentials) {
    this.#request = request;
    this.#credentials = credentials;
  }

  async authorize(challenge: Challenge): Promise<Authorization> {
    const nonce = challenge.parameters.get("nonce");
    this.#count = nonce === this.#nonce ? this.#count + 1 : 1;
    this.#nonce = nonce;
    const cnonce = randomBytes(16).toString("base64url");
    return digestAuthorization(challenge, { ...this.#request, ...this.#credentials, cnonce, count: this.#count });
  }

  /** `stale`: the nonce was too old, and nothing is said of the password (RFC 7616 §3.3). */
  goesOn(challenges: readonly Challenge[]): Challenge | undefined {
    const challenge = pickDigest(challenges);
    return challenge?.parameters.get("stale")?.toLowerCase() === "true" ? challenge : undefined;
  }
}

export interface DigestRequest extends Credentials {
  readonly method: string;
  readonly uri: string;
  readonly cnonce: string;
  /** Requests with this nonce, this one included. */
  readonly count: number;
}

/** The field that answers a challenge which `pickDigest` has found fit (RFC 7616 §3.4). Pure. */
export function digestAuthorization(challenge: Challenge, request: DigestRequest): Authorization {
  const fit = readChallenge(challenge);
  if (fit === undefined) throw new TypeError("no Digest that can be computed");
  const { realm, nonce, hash, session, qop } = fit;
  const { user, password, method, uri, cnonce } = request;
  const nc = request.count.toString(16).padStart(8, "0");
  // What the proxy sent is hashed as its bytes were, which a header keeps one to a character; what is ours is UTF-8.
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
  // Who has it can try passwords at home.
  return { value: `Digest ${fields.join(", ")}`, secret: response };
}

interface DigestChallenge {
  readonly realm: string;
  readonly nonce: string;
  /** As the RFC calls it. */
  readonly family: string;
  /** As OpenSSL calls it. */
  readonly hash: string;
  readonly session: boolean;
  /** Absent in proxies of before 1999 (RFC 2069), whose response has no count. */
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

/** A name that is not plain ASCII goes in the form of RFC 8187; neither form lets it end the field. */
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
