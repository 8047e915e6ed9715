import { loadClientTls, TlsFileError, type TlsMaterial } from "../../shared/net/tls-material.ts";

/** Files with what proves the agent to the server, and the server to the agent; "" = not given. */
export interface CredentialFiles {
  readonly caCert: string;
  readonly agentCert: string;
  readonly agentKey: string;
}

/** Their content. Without `ca`, the authorities that Node brings count. */
export type Credentials = Partial<TlsMaterial>;

const FLAGS = { caFile: "--ca-cert", certFile: "--agent-cert", keyFile: "--agent-key" } as const;

/**
 * Reads the files anew, once for each attempt: a renewed certificate is used by the next link, without a restart
 * (design: "Trust"). All in one go, so that a `..data` symlink is hardly ever swapped in between; where it is, or where
 * certificate and key are written one after the other, the two do not fit and the next attempt finds them whole.
 */
export function readCredentials({ caCert, agentCert, agentKey }: CredentialFiles): Credentials {
  try {
    return loadClientTls({ caFile: caCert, certFile: agentCert, keyFile: agentKey });
  } catch (error) {
    if (!(error instanceof TlsFileError)) throw error;
    throw new Error(`${FLAGS[error.file]}: ${error.message}`, { cause: error });
  }
}
