import { readFile } from "node:fs/promises";

/** Files with what proves the agent to the server, and the server to the agent; "" = not given. */
export interface CredentialFiles {
  readonly caCert: string;
  readonly agentCert: string;
  readonly agentKey: string;
}

/** Their content. Without `ca`, the system's authorities count. */
export interface Credentials {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/**
 * Reads the files anew, once for each attempt: a renewed certificate is used by the next link, without a restart
 * (design: "Trust").
 */
export async function readCredentials(files: CredentialFiles): Promise<Credentials> {
  const [ca, cert, key] = await Promise.all([
    readOption("--ca-cert", files.caCert),
    readOption("--agent-cert", files.agentCert),
    readOption("--agent-key", files.agentKey),
  ]);
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

async function readOption(flag: string, path: string): Promise<Buffer | undefined> {
  if (path === "") return undefined;
  try {
    return await readFile(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unreadable";
    throw new Error(`the file of ${flag} cannot be read: ${path}: ${code}`, { cause: error });
  }
}
