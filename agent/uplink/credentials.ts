import { readTextSync } from "../../shared/documents/read-bounded.ts";
import { unfitToken, unverifiedClaims } from "../../shared/http/bearer.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { wellKnownAuthorities } from "../../shared/tls/authorities.ts";
import type { AuthorityEnds, Expiring } from "../../shared/tls/expiry.ts";
import { loadClientTls, TlsFileError, type TlsMaterial, type Validity } from "../../shared/tls/tls-material.ts";
import type { AgentOptions } from "../context/options.ts";
import { KeptFiles } from "./kept-files.ts";

/** Files with what proves the agent to the server, and the server to the agent; "" = not given. */
export type CredentialFiles = Pick<
  AgentOptions,
  "caCert" | "agentCert" | "agentKey" | "serviceAccountTokenPath" | "outerCa"
>;

/** `--outer-ca` in place of a file. */
const SYSTEM = "system";

/** The content of the credential files. Without `ca`, the authorities that Node brings count. */
export type Credentials = Partial<TlsMaterial & Validity> & {
  readonly token?: AgentToken;
  /** Authorities of middleboxes; absent: only the server may end TLS. */
  readonly outerCa?: readonly string[];
};

/** The files that are given: a change of one of them changes the credentials. */
export function pathsOf(files: CredentialFiles): string[] {
  const { caCert, agentCert, agentKey, serviceAccountTokenPath, outerCa } = files;
  const outer = outerCa === SYSTEM ? "" : outerCa;
  return [caCert, agentCert, agentKey, serviceAccountTokenPath, outer].filter((path) => path !== "");
}

/** When the first of them ends: what was opened with them is good until then. */
export function endOf({ notAfter, token }: Credentials): Date | undefined {
  const ends = [notAfter, token?.expiresAt].filter((end) => end !== undefined);
  return ends.length === 0 ? undefined : new Date(Math.min(...ends.map((end) => end.getTime())));
}

const FLAGS = { caFile: "--ca-cert", certFile: "--agent-cert", keyFile: "--agent-key" } as const;

/**
 * Reads the files anew, once for each attempt: a renewed certificate or token is used by the next link, without a
 * restart. All files are read together, so that a `..data` symlink is hardly ever swapped in between. If it is, or if
 * certificate and key are written one after the other, the two do not fit, and the next attempt finds them whole.
 */
export function readCredentials(files: CredentialFiles): Credentials {
  const { serviceAccountTokenPath: tokenPath } = files;
  const outerCa = readOuterCa(files.outerCa);
  const tls = { ...readTls(files), ...(outerCa && { outerCa }) };
  if (tokenPath === "") return tls;
  return { ...tls, token: readFor("--service-account-token-path", () => readToken(tokenPath)) };
}

/** Names the option whose file cannot be used. */
function readFor<T>(flag: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new Error(`${flag}: ${(error as Error).message}`, { cause: error });
  }
}

function readOuterCa(file: string): readonly string[] | undefined {
  if (file === "") return undefined;
  if (file === SYSTEM) return wellKnownAuthorities();
  const { ca } = readFor("--outer-ca", () => loadClientTls({ caFile: file }));
  return ca === undefined ? undefined : [ca];
}

function readTls({ caCert, agentCert, agentKey }: CredentialFiles): Partial<TlsMaterial & Validity> {
  try {
    return loadClientTls({ caFile: caCert, certFile: agentCert, keyFile: agentKey });
  } catch (error) {
    if (!(error instanceof TlsFileError)) throw error;
    throw new Error(`${FLAGS[error.file]}: ${error.message}`, { cause: error });
  }
}

/** A bearer token, and when it ends, if it says so. */
export interface AgentToken {
  readonly text: string;
  readonly expiresAt: Date | undefined;
  readonly issuedAt?: Date | undefined;
}

/**
 * Reads the token that Kubernetes puts into the file, and replaces there before it ends. Throws a sentence without it.
 */
function readToken(path: string): AgentToken {
  const text = readTextSync(path, `the token ${path}`).trim();
  const unfit = unfitToken(text);
  if (unfit !== undefined) throw new Error(`the token in ${path} ${unfit}`);
  const claims = unverifiedClaims(text);
  return { text, expiresAt: claims?.expiresAt, issuedAt: claims?.issuedAt };
}

/**
 * The credentials that an agent shows to its servers. New ones that have expired or are not valid yet do not replace
 * valid ones, and the log says so.
 */
export class KeptCredentials extends KeptFiles<Credentials> {
  constructor(files: CredentialFiles, log: Logger) {
    super({
      read: (valid) => {
        const read = readCredentials(files);
        if (valid !== undefined) requireNotWorse(read, valid);
        return read;
      },
      endOf,
      onUnusable: (reason, isOldValid) =>
        log.error({ reason }, `new credentials are not usable, the old ones ${isOldValid ? "stay" : "have expired"}`),
    });
  }
}

function requireNotWorse(read: Credentials, valid: Credentials): void {
  const end = endOf(read);
  if (end !== undefined && end <= new Date()) {
    throw new Error(`the certificate or token in the files ended on ${end.toISOString()}`);
  }
  if (hasBegun(read) || !hasBegun(valid)) return;
  const from = read.notBefore?.toISOString();
  throw new Error(`the certificate in the files is not valid before ${from}: from then on it is used`);
}

function hasBegun({ notBefore }: Credentials): boolean {
  return notBefore === undefined || notBefore <= new Date();
}

/**
 * The certificates of an agent that expire. The authorities of middleboxes (`--outer-ca`) are left out: their owner
 * renews them.
 */
export function* expiringOf(
  { cluster, caCert, agentCert, serviceAccountTokenPath }: CredentialFiles & Pick<AgentOptions, "cluster">,
  { cert, notBefore, notAfter, ca = "", token }: Credentials,
  authorities: AuthorityEnds,
): Generator<Expiring> {
  const consequence = "servers refuse this agent";
  if (cert !== undefined && notBefore !== undefined && notAfter !== undefined) {
    yield {
      role: "agent_cert",
      cluster,
      thing: "certificate",
      by: "--agent-cert",
      fields: { file: agentCert },
      notBefore,
      notAfter,
      content: cert,
      consequence,
    };
  }
  const next = authorities.next(ca, new Date());
  if (next !== undefined) {
    yield {
      role: "server_ca",
      cluster,
      thing: "CA",
      by: "--ca-cert",
      fields: { file: caCert },
      ...next,
      content: ca,
      consequence: "this agent refuses servers with its certificates",
    };
  }
  if (token?.expiresAt !== undefined) {
    // The warning times depend on the lifetime of the token. A token without an issue time counts as issued just now
    // at each look, so no warning comes before it has expired.
    const { text: content, expiresAt } = token;
    const { issuedAt = new Date(Math.min(expiresAt.getTime(), Date.now() - 1_000)) } = token;
    yield {
      role: "token",
      cluster,
      thing: "token",
      by: "--service-account-token-path",
      notBefore: issuedAt,
      notAfter: expiresAt,
      content,
      consequence,
      fields: { file: serviceAccountTokenPath },
    };
  }
}
