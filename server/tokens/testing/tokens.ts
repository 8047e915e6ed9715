import { type CryptoKey, exportJWK, generateKeyPair, type JSONWebKeySet, SignJWT } from "jose";
import { type Logger, pino } from "pino";
import type { VerificationResult } from "../verifier.ts";

export const ISSUER = "https://kubernetes.default.svc";
export const SUBJECT = "system:serviceaccount:culvert:agent";

export const nowS = (): number => Math.floor(Date.now() / 1_000);

/** An issuer of tokens, with one key. */
export class Issuer {
  readonly kid: string;
  readonly algorithm: string;
  readonly publicKey: CryptoKey;
  readonly #privateKey: CryptoKey;

  private constructor(kid: string, algorithm: string, keys: { publicKey: CryptoKey; privateKey: CryptoKey }) {
    this.kid = kid;
    this.algorithm = algorithm;
    this.publicKey = keys.publicKey;
    this.#privateKey = keys.privateKey;
  }

  static async create(kid = "k1", algorithm = "ES256"): Promise<Issuer> {
    return new Issuer(kid, algorithm, await generateKeyPair(algorithm, { extractable: true }));
  }

  /** A token that the verifiers of these tests accept, but for `change`; `undefined` leaves a claim out. */
  token(change: Readonly<Record<string, unknown>> = {}): Promise<string> {
    const claims = { iss: ISSUER, aud: ["culvert"], sub: SUBJECT, exp: nowS() + 3_600, ...change };
    return new SignJWT(JSON.parse(JSON.stringify(claims)))
      .setProtectedHeader({ alg: this.algorithm, kid: this.kid })
      .sign(this.#privateKey);
  }

  async keySet(): Promise<JSONWebKeySet> {
    return { keys: [{ ...(await exportJWK(this.publicKey)), kid: this.kid, alg: this.algorithm }] };
  }
}

/** The text of a token without a valid signature. */
export function unsigned(header: object, payload: object, signature = ""): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part(header)}.${part(payload)}.${signature}`;
}

/** The sentence of a refusal, or what it was instead. */
export function refusal(result: VerificationResult): string {
  return "refused" in result ? result.refused : `no refusal: ${JSON.stringify(result)}`;
}

export function captureLog(): { log: Logger; messages: () => string[] } {
  const lines: string[] = [];
  const log = pino({ level: "debug" }, { write: (line) => lines.push(line) });
  return { log, messages: () => lines.map((line) => JSON.parse(line).msg) };
}

/** Whether the sentence holds a piece of the token that is long enough to be of use. */
export function showsPartOf(token: string, sentence: string): boolean {
  const LENGTH = 10;
  for (let at = 0; at + LENGTH <= token.length; at++) {
    if (sentence.includes(token.slice(at, at + LENGTH))) return true;
  }
  return false;
}
