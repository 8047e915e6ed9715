import { createLocalJWKSet, createRemoteJWKSet, customFetch, type JSONWebKeySet, type JWTVerifyGetKey } from "jose";
import { readBoundedSync } from "../../shared/documents/read-bounded.ts";
import { readFailure } from "../../shared/documents/read-failure.ts";
import { WatchedFiles } from "../../shared/documents/watched-files.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { loadClientTls } from "../../shared/tls/tls-material.ts";
import { HttpsClient } from "./https.ts";

/** Where the public keys of a token issuer are: a JWKS (RFC 7517 §5). */
export type KeyLocation =
  | { readonly file: string }
  /** https only; `caFile`: believed instead of the authorities that Node brings. */
  | { readonly url: URL; readonly caFile?: string };

/** The issuer's keys, as they are at present. */
export interface IssuerKeys {
  readonly find: JWTVerifyGetKey;
  close(): void;
}

/** `onChanged`: what was verified by the keys of before counts no more. */
export function issuerKeys(location: KeyLocation, log: Logger, onChanged: () => void): IssuerKeys {
  return "file" in location ? keysInFile(location.file, log, onChanged) : keysAt(location.url, location.caFile);
}

/** Throws a sentence if the file cannot be used at the start; a later one that cannot leaves the old keys in force. */
function keysInFile(file: string, log: Logger, onRenewed: () => void): IssuerKeys {
  const renewed = "keys of the token issuer have changed";
  const unusable = "new keys of the token issuer cannot be used";
  const keys = new WatchedFiles({ paths: [file], load: () => readKeys(file), renewed, unusable }, { log, onRenewed });
  return { find: (header, token) => keys.content(header, token), close: () => keys.close() };
}

function readKeys(file: string): JWTVerifyGetKey {
  let text: string;
  try {
    text = readBoundedSync(file).toString("utf8");
  } catch (error) {
    throw new Error(`the key set ${file} cannot be read: ${readFailure(error)}`, { cause: error });
  }
  let keys: JSONWebKeySet;
  let find: JWTVerifyGetKey;
  try {
    keys = JSON.parse(text);
    find = createLocalJWKSet(keys);
  } catch (error) {
    throw new Error(`the key set ${file} is no JSON Web Key Set`, { cause: error });
  }
  if (keys.keys.length === 0) throw new Error(`the key set ${file} holds no key: nobody could come in`);
  // With a secret among them, whoever reads the file could make tokens.
  if (keys.keys.some((key) => key.kty === "oct" || key.d !== undefined)) {
    throw new Error(`the key set ${file} holds a private or a shared key: give the public ones only`);
  }
  return find;
}

/** An unauthenticated peer can name keys that do not exist. The issuer is asked for them at most this often, ms. */
const COOLDOWN_MS = 30_000;
/** After a fetch that failed, nobody asks again for so long, ms: each token that comes would. */
const FAILED_COOLDOWN_MS = 5_000;
/** How long a key that the issuer has withdrawn may still be good, ms. */
const MAX_AGE_MS = 600_000;
const TIMEOUT_MS = 5_000;

function keysAt(url: URL, caFile: string | undefined): IssuerKeys {
  if (url.protocol !== "https:") throw new Error(`the keys of the token issuer must come over https, not from ${url}`);
  const client = new HttpsClient();
  // Read anew for each fetch, and once now: a wrong path is found at the start.
  const tls = (): { readonly ca?: string } => (caFile === undefined ? {} : loadClientTls({ caFile }));
  tls();
  const fetchKeys = async (headers: Headers, signal: AbortSignal): Promise<Response> => {
    const wanted = { url, method: "GET", headers: Object.fromEntries(headers), tls: tls(), signal } as const;
    const { status, text } = await client.send(wanted);
    if (status !== 200) throw new Error(`it answered ${status}`);
    createLocalJWKSet(JSON.parse(text)); // what is none has failed as well
    return new Response(text, { status });
  };
  let failed: { readonly error: unknown; readonly at: number } | undefined;
  const find = createRemoteJWKSet(url, {
    cooldownDuration: COOLDOWN_MS,
    cacheMaxAge: MAX_AGE_MS,
    timeoutDuration: TIMEOUT_MS,
    [customFetch]: async (_href, { headers, signal }) => {
      if (failed !== undefined && Date.now() - failed.at < FAILED_COOLDOWN_MS) throw failed.error;
      try {
        return await fetchKeys(headers, signal);
      } catch (error) {
        failed = { error, at: Date.now() };
        throw error;
      }
    },
  });
  return { find, close: () => client.close() };
}
