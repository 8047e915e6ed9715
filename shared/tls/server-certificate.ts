import { X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, PeerCertificate, TLSSocket } from "node:tls";
import { isInstalled, signs } from "./authorities.ts";
import { usageOf } from "./certificate-fields.ts";
import { issuerName, isUntrusted, namesIn } from "./certificate-names.ts";
import { certificates } from "./tls-material.ts";

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
export interface ServerCircumstances extends Circumstances {
  /** The server's name, as it was dialled. */
  readonly host: string;
}

/** By OpenSSL's or Node's code, and by what is in the certificates; `undefined`: the error is about something else. */
export function certificateFault(
  error: NodeJS.ErrnoException,
  raw: readonly Buffer[],
  circumstances: ServerCircumstances,
): UnknownIssuer | CertificateFault | undefined {
  const { code } = error;
  const shown = raw.map((bytes) => new X509Certificate(bytes));
  const [leaf] = shown;
  if (isUntrusted(error)) return new UnknownIssuer(factsOf(shown, circumstances), error);
  if (leaf === undefined) return undefined;
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return wrongName(error, circumstances.host);
    case "CERT_HAS_EXPIRED":
      return new CertificateFault("server_expired", expiredWords(shown, leaf), { cause: error });
    case "CERT_NOT_YET_VALID":
      return new CertificateFault("server_not_yet_valid", earlyWords(shown, leaf), { cause: error });
    case "INVALID_PURPOSE":
      return wrongUsage(error, shown, leaf, circumstances);
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
  circumstances: ServerCircumstances,
): CertificateFault | UnknownIssuer {
  const usage = usageOf(leaf);
  // A CA's own certificate, most likely: OpenSSL has its usage to say last, and that nobody knows it before.
  if (usage.servers && leaf.subject === leaf.issuer) return new UnknownIssuer(factsOf(shown, circumstances), error);
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

/**
 * Names of authorities that no company's TLS inspection bears: those of `culvert pki`, of Konnectivity's installers
 * (konnectivity-signer) and of Kubernetes (kubernetes, kube-…, kubelet-signer, k3s-server-ca@…). Whole words: what only
 * begins like one may be anybody's name.
 */
const WORDS = ["culvert", "konnectivity", "kube", "kubeadm", "kubelet", "kubermatic", "kubernetes", "minikube", "k3s"];
/** A word may have its CA stuck to it, as minikubeCA. */
const OF_A_CONTROL_PLANE = new RegExp(`(?:^|[^a-z0-9])(?:${WORDS.join("|")})(?:ca)?(?![a-z0-9])`, "i");

function isOfControlPlane(issuer: string): boolean {
  return OF_A_CONTROL_PLANE.test(issuer);
}

/** Products that open TLS, and words that their CAs are called by. Kubernetes has a front-proxy-ca. */
const INSPECTORS = [
  ...["inspection", "intercept(?:ion|ing)?", "decrypt(?:ion)?", "(?<!front-)proxy", "firewall", "gateway ca", "mitm"],
  ...[
    "zscaler",
    "netskope",
    "palo ?alto",
    "forti(?:net|gate|proxy)",
    "blue ?coat",
    "cisco umbrella",
    "sophos",
    "mcafee",
  ],
  ...["skyhigh", "trellix", "barracuda", "check ?point", "forcepoint", "websense", "sonicwall", "watchguard", "iboss"],
  ...["smoothwall", "menlo", "cloudflare for teams", "squid", "mitmproxy", "portswigger", "charles", "fiddler"],
  ...["kaspersky", "bitdefender", "eset", "avast"],
];
const OF_AN_INSPECTION = new RegExp(`(?:^|[^a-z0-9])(?:${INSPECTORS.join("|")})(?![a-z0-9])`, "i");

/** How the certificate that was shown stands to `--ca-cert`. */
export type Relation =
  /** There is no `--ca-cert`. */
  | "none_given"
  /** Its CA is none of those. */
  | "another"
  /** One of those has the name of its CA, and another key. */
  | "same_name"
  /** It has no CA but itself. */
  | "self_signed";

/** What is known of a certificate that comes from none of our CAs. */
export interface IssuerFacts {
  /** Who has signed it, at the top of what was shown, as it calls itself. */
  readonly issuer: string;
  readonly relation: Relation;
  /** What is more likely: `--ca-cert` lacks the server's CA, or somebody on the path opens TLS. */
  readonly kind: "unknown_ca" | "intercepted";
}

/** What else is known where such a certificate is met. */
export interface Circumstances {
  /** Content of `--ca-cert` (PEM); absent: it is not given. */
  readonly ca: string | undefined;
  /** Somebody who opens TLS is expected (`--outer-ca`), or a proxy has opened the connection. */
  readonly isBoxLikely: boolean;
}

/**
 * On a direct path only one thing is known: that this CA is not in `--ca-cert`. Interception comes first where something
 * else speaks for it: a proxy or `--outer-ca`, the CA's name, or that this machine trusts the CA, which no server's own is.
 */
export function factsOf(shown: readonly X509Certificate[], { ca, isBoxLikely }: Circumstances): IssuerFacts {
  const top = shown.at(-1);
  if (top === undefined) return { issuer: "unknown", relation: "another", kind: "unknown_ca" };
  const issuer = issuerName(top) ?? "unknown";
  const relation = relationOf(shown, top, ca);
  const isOurs = relation === "same_name" || isOfControlPlane(issuer);
  const isBox = !isOurs && (isBoxLikely || OF_AN_INSPECTION.test(issuer) || isInstalled(top));
  return { issuer, relation, kind: isBox ? "intercepted" : "unknown_ca" };
}

function relationOf(shown: readonly X509Certificate[], top: X509Certificate, ca: string | undefined): Relation {
  const ours = ca === undefined ? [] : certificates(ca);
  const isNamesake = (certificate: X509Certificate): boolean =>
    ours.some(({ subject }) => subject === certificate.issuer) && !signs(ours, certificate);
  if (shown.some(isNamesake)) return "same_name";
  if (shown.length === 1 && top.subject === top.issuer) return "self_signed";
  return ca === undefined ? "none_given" : "another";
}

/** The certificate shown is of none of our CAs: another server's, somebody's who opens TLS, or `--ca-cert` is wrong. */
export class UnknownIssuer extends Error {
  override readonly name = "UnknownIssuer";
  readonly code: string | undefined;
  readonly issuer: string;
  readonly relation: Relation;
  readonly kind: IssuerFacts["kind"];

  constructor(facts: IssuerFacts, cause: NodeJS.ErrnoException) {
    super(facts.kind === "intercepted" ? interceptedWords(facts) : caWords(facts, TAILS.outside), { cause });
    this.code = cause.code;
    this.issuer = facts.issuer;
    this.relation = facts.relation;
    this.kind = facts.kind;
  }
}

/** What is less likely than a wrong `--ca-cert`, outside and inside of inner TLS. */
const TAILS = {
  outside: { port: ", or correct the port in --server", else: "; or something on the path opens TLS" },
  inside: { port: "", else: "; or something on the path plays the server" },
} as const;

/** The same inside of inner TLS, where nobody else than the server should be. */
export function innerCaWords(facts: IssuerFacts): string {
  return caWords(facts, TAILS.inside);
}

function caWords({ issuer, relation }: IssuerFacts, tail: (typeof TAILS)[keyof typeof TAILS]): string {
  switch (relation) {
    case "none_given":
      return `the server's certificate is signed by "${issuer}", and no --ca-cert is given: give that CA's certificate as --ca-cert${tail.else}`;
    case "another":
      return `the server's certificate is signed by "${issuer}", which is not in --ca-cert: add it there${tail.port}${tail.else}`;
    case "same_name":
      return `the server's certificate is signed by another CA than the one in --ca-cert: same name ("${issuer}"), another key; copy the server's present CA file to --ca-cert`;
    case "self_signed":
      return `the server's certificate "${issuer}" has signed itself, and is not in --ca-cert: give it as --ca-cert if it is the server's${tail.else}`;
  }
}

function interceptedWords({ issuer }: IssuerFacts): string {
  return `TLS is intercepted by "${issuer}", none of our CAs: exempt the server from inspection, or go through by --outer-ca (not --inner-tls=never); if it is the server's CA: --ca-cert`;
}
