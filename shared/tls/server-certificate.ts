import { X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, PeerCertificate, TLSSocket } from "node:tls";
import { usageOf } from "./certificate-usage.ts";
import { namesIn } from "./identity-words.ts";
import { issuerName } from "./issuer-name.ts";
import { type Circumstances, factsOf, UnknownIssuer } from "./unknown-issuer.ts";
import { isUntrusted } from "./untrusted.ts";

/** More certificates than any real chain has; CAs that have signed each other never come to an end. */
const MAX_CHAIN = 10;

/**
 * What the peer has shown, from its own certificate upwards, and the CA that we know if there is one. To be asked at
 * "secure", before Node judges the certificate and throws it away with the connection. Not by `getPeerX509Certificate`:
 * after that Node finds no name in the certificate.
 */
export function shownBy(socket: TLSSocket): readonly Buffer[] {
  const shown: Buffer[] = [];
  let certificate: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
  while (certificate?.raw !== undefined && shown.length < MAX_CHAIN) {
    shown.push(certificate.raw);
    const issuer: DetailedPeerCertificate | undefined = certificate.issuerCertificate;
    certificate = issuer === certificate ? undefined : issuer;
  }
  return shown;
}

/** What is wrong with the certificate of a server that one of our CAs has signed, as a sentence. */
export class CertificateFault extends Error {
  override readonly name = "CertificateFault";
  readonly kind: "server_expired" | "server_not_yet_valid" | "wrong_name" | "wrong_usage";
  readonly code: string | undefined;
  /** For whom it is, where its name is wrong; a few of them. */
  readonly names: string | undefined;
  /** It is a client's. */
  readonly isClients: boolean;

  constructor(
    kind: CertificateFault["kind"],
    message: string,
    { cause, names, isClients = false }: { cause: NodeJS.ErrnoException; names?: string; isClients?: boolean },
  ) {
    super(message, { cause });
    this.kind = kind;
    this.code = cause.code;
    this.names = names;
    this.isClients = isClients;
  }
}

/** Where a certificate was shown, and to whom. */
export interface Standing extends Circumstances {
  /** The server's name, as it was dialled. */
  readonly host: string;
}

/** By OpenSSL's or Node's code, and by what is in the certificates; `undefined`: the error is about something else. */
export function certificateFault(
  error: NodeJS.ErrnoException,
  raw: readonly Buffer[],
  standing: Standing,
): UnknownIssuer | CertificateFault | undefined {
  const { code } = error;
  const shown = raw.map((bytes) => new X509Certificate(bytes));
  const [leaf] = shown;
  if (isUntrusted(error)) return new UnknownIssuer(factsOf(shown, standing), error);
  if (leaf === undefined) return undefined;
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return wrongName(error, standing.host);
    case "CERT_HAS_EXPIRED":
      return new CertificateFault("server_expired", expiredWords(shown, leaf), { cause: error });
    case "CERT_NOT_YET_VALID":
      return new CertificateFault("server_not_yet_valid", earlyWords(shown, leaf), { cause: error });
    case "INVALID_PURPOSE":
      return wrongUsage(error, shown, leaf, standing);
    default:
      return undefined;
  }
}

function wrongName(error: NodeJS.ErrnoException & { readonly cert?: PeerCertificate }, host: string): CertificateFault {
  const names = error.cert && namesIn(error.cert);
  const cure = `issue the server's --cluster-cert for ${host}`;
  const message =
    names === undefined
      ? `the server's certificate has no name in it, and so not ${host}: ${cure}`
      : `the server's certificate is for ${names}, not for ${host}: name the server so in --server, or ${cure}`;
  return new CertificateFault("wrong_name", message, { cause: error, ...(names !== undefined && { names }) });
}

function wrongUsage(
  error: NodeJS.ErrnoException,
  shown: readonly X509Certificate[],
  leaf: X509Certificate,
  standing: Standing,
): CertificateFault | UnknownIssuer {
  const usage = usageOf(leaf);
  // A CA's own certificate, most likely: OpenSSL has its usage to say last, and that nobody knows it before.
  if (usage.servers && leaf.subject === leaf.issuer) return new UnknownIssuer(factsOf(shown, standing), error);
  const what = usage.servers
    ? "has a key usage that no server may have"
    : `is ${usage.clients ? "a client's" : "not for servers"}: its extended key usage has no serverAuth`;
  const message = `the server's certificate ${what}; issue the server's --cluster-cert again, with serverAuth and digitalSignature`;
  return new CertificateFault("wrong_usage", message, { cause: error, isClients: !usage.servers && usage.clients });
}

function expiredWords(shown: readonly X509Certificate[], leaf: X509Certificate): string {
  const late = shown.find(({ validTo }) => Date.parse(validTo) <= Date.now()) ?? leaf;
  const expired = `expired on ${minute(Date.parse(late.validTo))}, by this machine's clock, which says ${thisMinute()}`;
  return late === leaf
    ? `the server's certificate ${expired}: renew the server's --cluster-cert, or set the clock`
    : `the CA "${nameOf(late)}" of the server's certificate ${expired}: renew it, at the server and in --ca-cert`;
}

function earlyWords(shown: readonly X509Certificate[], leaf: X509Certificate): string {
  const early = shown.find(({ validFrom }) => Date.parse(validFrom) > Date.now()) ?? leaf;
  const whose = early === leaf ? "the server's certificate" : `the CA "${nameOf(early)}" of the server's certificate`;
  return `${whose} is not valid before ${minute(Date.parse(early.validFrom))}, and this machine's clock says ${thisMinute()}: compare clocks, or issue --cluster-cert again`;
}

/** Of a CA: it has signed itself, or its subject reads the same way. */
function nameOf({ subject }: X509Certificate): string {
  return issuerName({ issuer: subject }) ?? "unknown";
}

/** No more of it: a reason that is another one at each attempt would be told at each attempt. */
function thisMinute(): string {
  return minute(Date.now());
}

function minute(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 16)}Z`;
}
