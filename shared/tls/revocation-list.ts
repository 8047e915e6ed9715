import { constants, verify, type X509Certificate } from "node:crypto";
import { readBoundedSync, readFailure } from "../documents/read-bounded.ts";
import { WatchedFiles, type WatchedFilesOptions } from "../documents/watched-files.ts";
import { type Element, elements, inside, subjectOf, TAG, theElement } from "./certificate-fields.ts";

/** RSASSA-PSS. Its parameters name the hash, and only the right one verifies. */
const PSS = "2a864886f70d01010a";
/**
 * The hashes of signature algorithms by their hexadecimal OID (RFC 5758 §3, RFC 4055 §5, RFC 8410 §3), without SHA-1,
 * which is broken.
 */
const HASHES: ReadonlyMap<string, readonly (string | null)[]> = new Map([
  ["2a8648ce3d040302", ["sha256"]],
  ["2a8648ce3d040303", ["sha384"]],
  ["2a8648ce3d040304", ["sha512"]],
  ["2a864886f70d01010b", ["sha256"]],
  ["2a864886f70d01010c", ["sha384"]],
  ["2a864886f70d01010d", ["sha512"]],
  ["2b6570", [null]],
  ["2b6571", [null]],
  [PSS, ["sha256", "sha384", "sha512"]],
]);

/** OIDs of critical extensions that do not limit which certificates a list covers (RFC 5280 §5.2). */
const HARMLESS: ReadonlySet<string> = new Set(["551d23", "551d12", "551d14", "551d1c"]);
const DELTA = "551d1b";

/** A CRL (RFC 5280 §5): the certificates that one CA has revoked. */
export class RevocationList {
  readonly thisUpdate: Date;
  /** When the next one is due; absent: the list does not say. */
  readonly nextUpdate: Date | undefined;
  readonly #issuer: Buffer;
  readonly #serials: ReadonlySet<string>;
  readonly #tbs: Buffer;
  readonly #algorithm: string;
  readonly #signature: Buffer;

  /** Throws what is wrong with it, to continue "the CRL ". */
  constructor(der: Buffer) {
    const [tbs, algorithm, signature] = inside(theElement(der));
    if (
      tbs === undefined ||
      algorithm === undefined ||
      signature?.tag !== TAG.bitString ||
      signature.content[0] !== 0
    ) {
      throw new Error("is no CRL");
    }
    const parts = inside(tbs);
    if (parts[0]?.tag === 0x02) parts.shift(); // the version
    const [inner, issuer, thisUpdate, ...rest] = parts;
    // RFC 5280 §5.1.1.2
    if (inner?.whole.equals(algorithm.whole) !== true) throw new Error("names two algorithms for its signature");
    if (issuer === undefined || thisUpdate === undefined) throw new Error("is no CRL");
    this.thisUpdate = timeOf(thisUpdate);
    this.nextUpdate = isTime(rest[0]) ? timeOf(rest.shift() as Element) : undefined;
    const revoked = rest[0]?.tag === TAG.sequence ? inside(rest[0]) : [];
    const extensions = rest.find(({ tag }) => tag === 0xa0);
    if (extensions !== undefined) assertComplete(inside(theElement(extensions.content)));
    this.#serials = new Set(revoked.map(serialOf));
    this.#issuer = issuer.whole;
    this.#tbs = tbs.whole;
    this.#algorithm = oidOf(algorithm);
    this.#signature = signature.content.subarray(1); // after the number of bits that are not used
  }

  /** Whether this CA has issued it, by name and signature. */
  isOf(ca: X509Certificate): boolean {
    const hashes = hasName(ca, this.#issuer) ? (HASHES.get(this.#algorithm) ?? []) : [];
    return hashes.some((hash) => this.#isVerifiedBy(ca, hash));
  }

  #isVerifiedBy(ca: X509Certificate, hash: string | null): boolean {
    const pss = { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: constants.RSA_PSS_SALTLEN_AUTO };
    try {
      const key = { key: ca.publicKey, ...(this.#algorithm === PSS && pss) };
      return verify(hash, this.#tbs, key, this.#signature);
    } catch {
      return false; // a key of another kind, or of one that Node does not know
    }
  }

  /** Whether it revokes this certificate of its CA. */
  has({ serialNumber }: X509Certificate): boolean {
    return this.#serials.has(serialNumber.toLowerCase().replace(/^(-?)0+/, "$1"));
  }
}

function hasName({ raw }: X509Certificate, name: Buffer): boolean {
  try {
    return subjectOf(raw).equals(name);
  } catch {
    return false; // a CA of one tenant must not end the process for all
  }
}

/** The serial number of an entry. A critical extension of an entry names another CA (§5.3.3). */
function serialOf(entry: Element): string {
  const [serial, , extensions] = inside(entry);
  if (serial === undefined) throw new Error("has an entry without a serial number");
  if (extensions !== undefined && inside(extensions).some(isCritical)) {
    throw new Error("has entries of other CAs (an indirect CRL), which is not supported");
  }
  return numberOf(serial.content);
}

/** OpenSSL's form, without leading zeros. A serial number should be positive (§4.1.2.2), and is not always. */
function numberOf(bytes: Buffer): string {
  const hex = bytes.toString("hex");
  if ((bytes[0] ?? 0) < 0x80) return hex.replace(/^0+/, "");
  return BigInt.asIntN(8 * bytes.length, BigInt(`0x${hex}`)).toString(16);
}

function assertComplete(extensions: readonly Element[]): void {
  for (const extension of extensions) {
    const oid = oidOf(extension);
    if (oid === DELTA) throw new Error("is a delta CRL: give the complete one");
    if (isCritical(extension) && !HARMLESS.has(oid))
      throw new Error(`has a critical extension that is not known (${oid})`);
  }
}

function isCritical(extension: Element): boolean {
  const [, critical] = inside(extension);
  return critical?.tag === TAG.boolean && critical.content[0] !== 0;
}

/** The OID that a SEQUENCE begins with, hexadecimal. */
function oidOf(sequence: Element): string {
  const [oid] = elements(sequence.content);
  if (sequence.tag !== TAG.sequence || oid?.tag !== TAG.oid) throw new Error("is no CRL");
  return oid.content.toString("hex");
}

function isTime(element: Element | undefined): boolean {
  return element?.tag === 0x17 || element?.tag === 0x18;
}

/** UTCTime has two digits for the year, GeneralizedTime four (§5.1.2.4). */
function timeOf({ tag, content }: Element): Date {
  const text = content.toString("latin1");
  const full = tag === 0x17 ? `${Number(text.slice(0, 2)) < 50 ? "20" : "19"}${text}` : text;
  const found = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(full);
  if (found === null) throw new Error("has a date that cannot be read");
  const [year = 0, month = 0, ...rest] = found.slice(1).map(Number);
  return new Date(Date.UTC(year, month - 1, ...(rest as [number, number, number, number])));
}

/** The content of a CRL file; another object whenever the content is another. */
export interface CrlFile {
  readonly pem: string;
  readonly lists: readonly RevocationList[];
}

/** The fault of a CRL file, as a sentence with its path. */
export class CrlFileError extends Error {
  override readonly name = "CrlFileError";
}

/** Throws a `CrlFileError`. The largest file (4 MiB, 85,000 entries) takes 0.15 s of the event loop. */
export function loadCrls(path: string): CrlFile {
  const refuse = (why: string, cause?: unknown) => new CrlFileError(`the CRL file ${path} ${why}`, { cause });
  let pem: string;
  try {
    pem = readBoundedSync(path).toString("utf8");
  } catch (error) {
    throw refuse(`cannot be read: ${readFailure(error)}`, error);
  }
  const blocks = pem.match(/-----BEGIN X509 CRL-----[^-]+-----END X509 CRL-----/g) ?? [];
  const begun = pem.split("-----BEGIN X509 CRL-----").length - 1;
  if (begun === 0) throw refuse("holds no PEM CRL (-----BEGIN X509 CRL-----)");
  if (blocks.length < begun) throw refuse("holds a damaged CRL");
  const lists = blocks.map((block, index) => {
    try {
      return new RevocationList(Buffer.from(block.replace(/-----[^-]+-----/g, ""), "base64"));
    } catch (error) {
      throw refuse(`is not usable: CRL ${index + 1} in it ${(error as Error).message}`, error);
    }
  });
  return { pem, lists };
}

/** The CRLs of `--client-crl-file`. */
export class WatchedCrl extends WatchedFiles<CrlFile> {
  readonly path: string;

  /** Throws a `CrlFileError`. */
  constructor(path: string, options: WatchedFilesOptions<CrlFile>) {
    super(
      {
        paths: [path],
        load: () => loadCrls(path),
        renewed: "CRLs were read again",
        unusable: "a new CRL file is not usable, the old one stays",
        fields: ({ lists }) => ({ crls: lists.length }),
      },
      options,
    );
    this.path = path;
  }
}
