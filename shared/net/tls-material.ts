import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
}

/** What was in them, as `node:tls` takes it. */
export interface TlsMaterial {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
  /** When the first certificate of the chain expires. */
  readonly notAfter: Date;
}

/** Certificate, key and CA of a listener; throws an `Error` that names the file and what is wrong with it. */
export function loadServerTls(files: TlsFiles): TlsMaterial {
  return { ...loadPair(files.certFile, files.keyFile), ca: loadAuthorities(files.caFile) };
}

/** The same for an outgoing connection, read at each attempt. An empty path leaves its part to the defaults of Node. */
export function loadClientTls(files: Partial<TlsFiles>): Partial<TlsMaterial> {
  const { certFile, keyFile, caFile } = files;
  if (certFile && !keyFile) throw new Error(`the certificate ${certFile} needs its private key: no key file is given`);
  if (keyFile && !certFile)
    throw new Error(`the private key ${keyFile} needs its certificate: no certificate file is given`);
  return {
    ...(caFile ? { ca: loadAuthorities(caFile) } : {}),
    ...(certFile && keyFile ? loadPair(certFile, keyFile) : {}),
  };
}

/** The earliest end of validity in a chain of PEM certificates. */
export function certExpiry(pem: string): Date {
  return new Date(Math.min(...certificates(pem).map(({ validTo }) => Date.parse(validTo))));
}

function loadPair(certFile: string, keyFile: string): Pick<TlsMaterial, "cert" | "key" | "notAfter"> {
  const cert = read(certFile, "certificate");
  const key = read(keyFile, "private key");
  const [leaf] = parse(cert, certFile, "certificate");
  if (leaf?.checkPrivateKey(parseKey(key, keyFile)) !== true) {
    throw new Error(`the private key ${keyFile} does not belong to the first certificate in ${certFile}`);
  }
  return { cert, key, notAfter: certExpiry(cert) };
}

function loadAuthorities(caFile: string): string {
  const ca = read(caFile, "CA certificate");
  parse(ca, caFile, "CA certificate");
  return ca;
}

function read(path: string, what: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    const why = READ_ERRORS.get(code) ?? (error as Error).message;
    throw new Error(`the ${what} ${path} cannot be read: ${why}`, { cause: error });
  }
}

const READ_ERRORS = new Map([
  ["ENOENT", "there is no such file"],
  ["EACCES", "permission denied"],
  ["EISDIR", "it is a directory"],
]);

function parse(pem: string, path: string, what: string): X509Certificate[] {
  try {
    const found = certificates(pem);
    if (found.length > 0) return found;
  } catch (error) {
    throw new Error(`the ${what} ${path} holds a damaged certificate`, { cause: error });
  }
  throw new Error(`the ${what} ${path} holds no PEM certificate (-----BEGIN CERTIFICATE-----)`);
}

function certificates(pem: string): X509Certificate[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.map((block) => new X509Certificate(block));
}

/** OpenSSL's words about a key that it cannot read are for experts, and may hold parts of the file: not passed on. */
function parseKey(pem: string, path: string): KeyObject {
  if (!/-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/.test(pem)) {
    throw new Error(`the private key ${path} holds no PEM private key (-----BEGIN PRIVATE KEY-----)`);
  }
  try {
    return createPrivateKey(pem);
  } catch {
    const encrypted = pem.includes("ENCRYPTED");
    throw new Error(
      `the private key ${path} ${encrypted ? "is encrypted: store it without a passphrase" : "is damaged"}`,
    );
  }
}
