import { loadClientTls, TlsFileError, type TlsMaterial, type Validity } from "../../shared/tls/tls-material.ts";
import { wellKnownAuthorities } from "../../shared/tls/well-known-authorities.ts";
import { type AgentToken, readToken } from "./token.ts";

/** Files with what proves the agent to the server, and the server to the agent; "" = not given. */
export interface CredentialFiles {
  readonly caCert: string;
  readonly agentCert: string;
  readonly agentKey: string;
  readonly serviceAccountTokenPath: string;
  /** Beside these, whoever stands in between may come from these authorities; `system`: from those that Node brings. */
  readonly outerCa?: string;
}

/** `--outer-ca` in place of a file. */
const SYSTEM = "system";

/** Their content. Without `ca`, the authorities that Node brings count. */
export type Credentials = Partial<TlsMaterial & Validity> & {
  readonly token?: AgentToken;
  /** Of a middle box; absent: TLS may end at the server only. */
  readonly outerCa?: readonly string[];
};

/** The files that are given: a change of one of them changes the credentials. */
export function pathsOf({
  caCert,
  agentCert,
  agentKey,
  serviceAccountTokenPath,
  outerCa = "",
}: CredentialFiles): string[] {
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
 * Reads the files anew, once for each attempt: a renewed certificate or token is used by the next link, without a restart
 * (design: "Trust"). All in one go, so that a `..data` symlink is hardly ever swapped in between; where it is, or where
 * certificate and key are written one after the other, the two do not fit and the next attempt finds them whole.
 */
export function readCredentials(files: CredentialFiles): Credentials {
  const { serviceAccountTokenPath: tokenPath } = files;
  const tls = { ...readTls(files), ...readOuterCa(files.outerCa) };
  if (tokenPath === "") return tls;
  try {
    return { ...tls, token: readToken(tokenPath) };
  } catch (error) {
    throw new Error(`--service-account-token-path: ${(error as Error).message}`, { cause: error });
  }
}

function readOuterCa(file: string | undefined): Pick<Credentials, "outerCa"> {
  if (file === undefined || file === "") return {};
  if (file === SYSTEM) return { outerCa: wellKnownAuthorities() };
  try {
    const { ca } = loadClientTls({ caFile: file });
    return ca === undefined ? {} : { outerCa: [ca] };
  } catch (error) {
    throw new Error(`--outer-ca: ${(error as Error).message}`, { cause: error });
  }
}

function readTls({ caCert, agentCert, agentKey }: CredentialFiles): Partial<TlsMaterial & Validity> {
  try {
    return loadClientTls({ caFile: caCert, certFile: agentCert, keyFile: agentKey });
  } catch (error) {
    if (!(error instanceof TlsFileError)) throw error;
    throw new Error(`${FLAGS[error.file]}: ${error.message}`, { cause: error });
  }
}
