import { createPrivateKey, type KeyObject } from "node:crypto";
import { createSecureContext } from "node:tls";
import { readBoundedSync, readFailure } from "../documents/read-bounded.ts";
import { WatchedFiles, type WatchedFilesOptions } from "../documents/watched-files.ts";
import { authoritiesOf, leavesIn } from "./authorities.ts";
import { certificates, usageOf } from "./certificate-fields.ts";

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
}

/** The content of these files, for `node:tls`. */
export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  /** The CA of client certificates; empty: none is accepted. */
  readonly ca: string;
  /** The earliest end of validity in the chain. */
  readonly notAfter: Date;
}

/** When all certificates of a chain are valid, and what the first of them may be used for. */
export interface Validity {
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** Whether the certificate has an extended key usage without serverAuth. */
  readonly lacksServerAuth?: boolean | undefined;
}

/** The TLS files of a listener, and when its certificate is valid. */
export type ServerTls = TlsMaterial & Validity;

/** A certificate that belongs to its key, both PEM. */
export interface TlsPair extends Validity {
  readonly cert: string;
  readonly key: string;
}

/** Why clients refuse this server certificate now, if they do: `expired on 2026-06-01T…`. */
export function unfit({ notBefore, notAfter, lacksServerAuth }: Validity, now: Date): string | undefined {
  if (notAfter <= now) return `expired on ${notAfter.toISOString()}`;
  if (notBefore > now) return `not valid before ${notBefore.toISOString()}`;
  return lacksServerAuth ? NO_SERVER_AUTH : undefined;
}

export const NO_SERVER_AUTH = "has no serverAuth in its extended key usage";

/** The fault of a file, as a sentence with its path; and the role of the file, to name its flag. */
export class TlsFileError extends Error {
  override readonly name = "TlsFileError";
  readonly file: keyof TlsFiles;

  constructor(file: keyof TlsFiles, message: string, options?: ErrorOptions) {
    super(message, options);
    this.file = file;
  }
}

/** Loads certificate and key of a listener, and its CA if a path is given. Throws a `TlsFileError`. */
export function loadServerTls({ certFile, keyFile, caFile }: TlsFiles): ServerTls {
  const pair = loadPair(certFile, keyFile);
  try {
    createSecureContext({ cert: pair.cert, key: pair.key });
  } catch (error) {
    const why = (error as Error).message;
    throw new TlsFileError("certFile", `the certificate ${certFile} cannot be used: ${why}`, { cause: error });
  }
  return { ...pair, ca: caFile === "" ? "" : loadAuthorities(caFile) };
}

/** Loads the files of an outgoing connection. For an empty path, Node's default applies. Throws a `TlsFileError`. */
export function loadClientTls(files: Partial<TlsFiles>): Partial<TlsMaterial & Validity> {
  const { certFile, keyFile, caFile } = files;
  if (certFile && !keyFile)
    throw new TlsFileError("certFile", `the certificate ${certFile} needs its private key: no key file is given`);
  if (keyFile && !certFile)
    throw new TlsFileError("keyFile", `the private key ${keyFile} needs its certificate: no certificate file is given`);
  return {
    ...(caFile ? { ca: loadAuthorities(caFile) } : {}),
    ...(certFile && keyFile ? loadPair(certFile, keyFile) : {}),
  };
}

/** Loads certificate and key. Throws a `TlsFileError`. */
export function loadPair(certFile: string, keyFile: string): TlsPair {
  const cert = read("certFile", certFile);
  const key = read("keyFile", keyFile);
  const chain = parse("certFile", certFile, () => certificates(cert));
  const [leaf] = chain;
  if (leaf?.checkPrivateKey(parseKey(keyFile, key)) !== true) {
    throw new TlsFileError(
      "keyFile",
      `the private key ${keyFile} does not belong to the first certificate in ${certFile}`,
    );
  }
  const { servers, any } = usageOf(leaf);
  return {
    cert,
    key,
    lacksServerAuth: !servers && !any,
    notBefore: new Date(Math.max(...chain.map(({ validFrom }) => Date.parse(validFrom)))),
    notAfter: new Date(Math.min(...chain.map(({ validTo }) => Date.parse(validTo)))),
  };
}

function loadAuthorities(caFile: string): string {
  const ca = read("caFile", caFile);
  const found = parse("caFile", caFile, () => authoritiesOf(ca));
  if (found.every(({ isLeaf }) => isLeaf)) {
    const what = `the ${WORDS.caFile} ${caFile} holds no CA: "${leavesIn(ca)[0]}" is a leaf`;
    throw new TlsFileError("caFile", `${what}; give the certificate of the CA that has signed it`);
  }
  return ca;
}

const WORDS = { certFile: "certificate", keyFile: "private key", caFile: "CA certificate" } as const;

function read(file: keyof TlsFiles, path: string): string {
  try {
    return readBoundedSync(path).toString("utf8");
  } catch (error) {
    throw new TlsFileError(file, `the ${WORDS[file]} ${path} cannot be read: ${readFailure(error)}`, { cause: error });
  }
}

function parse<T>(file: keyof TlsFiles, path: string, readAll: () => readonly T[]): readonly T[] {
  const which = `the ${WORDS[file]} ${path}`;
  try {
    const found = readAll();
    if (found.length > 0) return found;
  } catch (error) {
    throw new TlsFileError(file, `${which} holds a damaged certificate`, { cause: error });
  }
  throw new TlsFileError(file, `${which} holds no PEM certificate (-----BEGIN CERTIFICATE-----)`);
}

/** OpenSSL's message about a key that it cannot read may hold parts of the file, and is not passed on. */
function parseKey(path: string, pem: string): KeyObject {
  if (!/-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/.test(pem)) {
    throw new TlsFileError("keyFile", `the private key ${path} holds no PEM private key (-----BEGIN PRIVATE KEY-----)`);
  }
  try {
    return createPrivateKey(pem);
  } catch {
    const fault = pem.includes("ENCRYPTED") ? "is encrypted: store it without a passphrase" : "is damaged";
    throw new TlsFileError("keyFile", `the private key ${path} ${fault}`);
  }
}

/** Certificate, key and CA of a listener. */
export class WatchedTls extends WatchedFiles<ServerTls> {
  /** Throws a `TlsFileError`. */
  constructor(files: TlsFiles, options: WatchedFilesOptions<ServerTls>) {
    const { certFile, keyFile, caFile } = files;
    super(
      {
        paths: caFile === "" ? [certFile, keyFile] : [certFile, keyFile, caFile],
        load: () => loadServerTls(files),
        renewed: "certificates were read again",
        unusable: "new certificates are not usable, the old ones stay",
        fileAtFault: (error) => (error instanceof TlsFileError ? files[error.file] : undefined),
        fields: ({ notAfter }) => ({ notAfter }),
      },
      options,
    );
  }
}
