import { X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, PeerCertificate, TLSSocket } from "node:tls";
import { type CaRelation, DialFault, type FaultFacts } from "../faults/faults.ts";
import { beforeVerification } from "../node/sockets.ts";
import { printable } from "../outcomes.ts";
import { isInstalled, signs } from "./authorities.ts";
import { certificates, chainFrom, parseAltNames, usageOf } from "./certificate-fields.ts";

/**
 * Returns what the peer has shown when the handshake is done, from its own certificate upwards, and the CA that we know
 * if there is one: before Node verifies the certificate and throws it away with the connection. Not by
 * `getPeerX509Certificate`: after that Node finds no name in the certificate.
 */
export function shownBy(socket: TLSSocket): () => readonly Buffer[] {
  let shown: readonly Buffer[] = [];
  beforeVerification(socket, () => {
    const certificate: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
    if (certificate?.raw !== undefined) shown = chainFrom(certificate).map(({ raw }) => raw);
  });
  return () => shown;
}

/** Where a certificate was shown, and to whom. */
interface CertificateContext extends IssuerContext {
  /** The server's name, as it was dialled. */
  readonly host: string;
}

/** By OpenSSL's or Node's code, and by what is in the certificates; `undefined`: the error is about something else. */
export function certificateFault(
  error: NodeJS.ErrnoException,
  raw: readonly Buffer[],
  standing: CertificateContext,
): DialFault | undefined {
  const { code } = error;
  const shown = raw.map((bytes) => new X509Certificate(bytes));
  const [leaf] = shown;
  if (isUntrusted(error)) return unknownIssuer(factsOf(shown, standing), error);
  if (leaf === undefined) return undefined;
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return wrongName(error, standing.host);
    case "CERT_HAS_EXPIRED":
      return timeFault("server_expired", shown, leaf, standing, error);
    case "CERT_NOT_YET_VALID":
      return timeFault("server_not_yet_valid", shown, leaf, standing, error);
    case "INVALID_PURPOSE":
      return wrongUsage(error, shown, leaf, standing);
    default:
      return undefined;
  }
}

/**
 * OpenSSL's codes for a chain that ends at none of our CAs. An expired certificate, or a wrong name, is not among them.
 */
const UNTRUSTED: ReadonlySet<string | undefined> = new Set([
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "CERT_SIGNATURE_FAILURE",
]);

/** Whether none of our CAs has signed the certificate. */
export function isUntrusted({ code }: NodeJS.ErrnoException): boolean {
  return UNTRUSTED.has(code);
}

/** The error of `tls.checkServerIdentity`. */
interface WrongIdentity extends NodeJS.ErrnoException {
  readonly host?: string;
  readonly cert?: PeerCertificate;
}

function wrongName(error: WrongIdentity, host: string): DialFault {
  const names = error.cert && namesIn(error.cert);
  const cure = `${names === undefined ? "" : "name the server so in --server, or "}issue the server's --cluster-cert for ${host}`;
  const message = `the server's certificate ${nameWords(names, host)}: ${cure}`;
  return new DialFault("wrong_name", message, { facts: { by: host, names }, cause: error });
}

/**
 * Why a handshake failed: Node's message, or, for a certificate without the name that was dialled, the names that it
 * has.
 */
export function identityWords(error: Error): string {
  const { code, syscall, host = "", cert } = error as WrongIdentity;
  if (code === "ECONNRESET" && syscall !== undefined) return "the connection was reset";
  if (code !== "ERR_TLS_CERT_ALTNAME_INVALID" || host === "" || cert === undefined) return error.message;
  return `the certificate ${nameWords(namesIn(cert), host)}`;
}

function nameWords(names: string | undefined, host: string): string {
  return names === undefined ? `has no name in it, and so not ${host}` : `is for ${names}, not for ${host}`;
}

/** Maximum number of names in a sentence. */
const MAX_NAMES = 3;

/** The names in a certificate: `a.example, b.example and 3 more`. The maker of the certificate chose them freely. */
function namesIn({ subject, subjectaltname = "" }: Partial<PeerCertificate>): string | undefined {
  const alternatives = hostsIn(subjectaltname);
  const common = [subject?.CN ?? []].flat().filter((name) => name !== "");
  const names = (alternatives.length > 0 ? alternatives : common).map((name) => printable(name, 80));
  if (names.length === 0) return undefined;
  const more = names.length - MAX_NAMES;
  return more > 0 ? `${names.slice(0, MAX_NAMES).join(", ")} and ${more} more` : names.join(", ");
}

/** The DNS names and IP addresses in a subjectAltName. */
function hostsIn(text: string): string[] {
  try {
    const hosts = parseAltNames(text).filter(({ kind }) => kind === "DNS" || kind === "IP Address");
    return hosts.map(({ value }) => value);
  } catch {
    return [text];
  }
}

function wrongUsage(
  error: NodeJS.ErrnoException,
  shown: readonly X509Certificate[],
  leaf: X509Certificate,
  standing: CertificateContext,
): DialFault {
  const usage = usageOf(leaf);
  // A CA's own certificate, most likely: OpenSSL has its usage to say last, and that nobody knows it before.
  if (usage.servers && leaf.subject === leaf.issuer) return unknownIssuer(factsOf(shown, standing), error);
  const what = usage.servers
    ? "has a key usage that no server may have"
    : `is ${usage.clients ? "a client's" : "not for servers"}: its extended key usage has no serverAuth`;
  const message = `the server's certificate ${what}; issue the server's --cluster-cert again, with serverAuth and digitalSignature`;
  return new DialFault("wrong_usage", message, { facts: { by: standing.host }, cause: error });
}

function timeFault(
  fault: "server_expired" | "server_not_yet_valid",
  shown: readonly X509Certificate[],
  leaf: X509Certificate,
  { host }: CertificateContext,
  cause: Error,
): DialFault {
  const now = Date.now();
  const hasEnded = ({ validTo }: X509Certificate) => Date.parse(validTo) <= now;
  const isEarly = ({ validFrom }: X509Certificate) => Date.parse(validFrom) > now;
  const [culprit = leaf] = shown.filter(fault === "server_expired" ? hasEnded : isEarly);
  const whose =
    culprit === leaf ? "the server's certificate" : `the CA "${nameOf(culprit)}" of the server's certificate`;
  const [from, to] = [Date.parse(culprit.validFrom), Date.parse(culprit.validTo)].map(minute);
  const renewal =
    culprit === leaf
      ? "renew the server's --cluster-cert, or set the clock"
      : "renew it, at the server and in --ca-cert";
  const message =
    fault === "server_expired"
      ? `${whose} expired on ${to}, by this machine's clock, which says ${minute(now)}: ${renewal}`
      : `${whose} is not valid before ${from}, and this machine's clock says ${minute(now)}: compare clocks, or issue --cluster-cert again`;
  const { validFrom, validTo } = shown.find((each) => hasEnded(each) || isEarly(each)) ?? leaf;
  const isOfCa = culprit !== leaf && culprit.subject === culprit.issuer;
  const validity = { validFrom: Date.parse(validFrom), validTo: Date.parse(validTo) };
  return new DialFault(fault, message, { facts: { by: host, isOfCa, ...validity }, cause });
}

/** Of a CA: it has signed itself, or its subject reads the same way. */
function nameOf({ subject }: X509Certificate): string {
  return issuerName(subject) ?? "unknown";
}

/** `CN`, or else the organisation, of a certificate's issuer. The maker of the certificate chose it freely. */
function issuerName(issuer: string | undefined): string | undefined {
  const lines = (issuer ?? "").split("\n");
  const partOf = (field: string) => lines.find((line) => line.startsWith(`${field}=`))?.slice(field.length + 1);
  const name = partOf("CN") ?? partOf("O");
  return name === undefined ? undefined : printable(name, 100);
}

/** To the minute: a reason that differs at each attempt would be logged at each attempt. */
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

/** Products that open TLS, and words that their CAs are called by. Kubernetes has a front-proxy-ca. */
const INSPECTORS = [
  "inspection|intercept(?:ion|ing)?|decrypt(?:ion)?|(?<!front-)proxy|firewall|gateway ca|mitm",
  "zscaler|netskope|palo ?alto|forti(?:net|gate|proxy)|blue ?coat|cisco umbrella|sophos",
  "mcafee|skyhigh|trellix|barracuda|check ?point|forcepoint|websense|sonicwall|watchguard",
  "iboss|smoothwall|menlo|cloudflare for teams|squid|mitmproxy|portswigger|charles",
  "fiddler|kaspersky|bitdefender|eset|avast",
];
const OF_AN_INSPECTION = new RegExp(`(?:^|[^a-z0-9])(?:${INSPECTORS.join("|")})(?![a-z0-9])`, "i");

/** The facts about a certificate that none of our CAs has signed. */
interface IssuerFacts {
  /** The issuer of the topmost certificate that was shown, by the name that it gives itself. */
  readonly issuer: string;
  readonly relation: CaRelation;
  /** The more likely cause: `--ca-cert` lacks the server's CA, or a middlebox opens TLS. */
  readonly kind: "unknown_ca" | "intercepted";
}

/** Other facts at the place where such a certificate is met. */
export interface IssuerContext {
  /** Content of `--ca-cert` (PEM); absent: it is not given. */
  readonly ca: string | undefined;
  /** Somebody who opens TLS is expected (`--outer-ca`), or a proxy has opened the connection. */
  readonly isMiddleboxLikely: boolean;
}

/**
 * On a direct path only one thing is known: that this CA is not in `--ca-cert`. Interception comes first where
 * something else speaks for it: a proxy or `--outer-ca`, the CA's name, or that this machine trusts the CA, which no
 * server's own is.
 */
export function factsOf(shown: readonly X509Certificate[], { ca, isMiddleboxLikely }: IssuerContext): IssuerFacts {
  const top = shown.at(-1);
  if (top === undefined) return { issuer: "unknown", relation: "another", kind: "unknown_ca" };
  const issuer = issuerName(top.issuer) ?? "unknown";
  const relation = relationOf(shown, top, ca);
  const isOurs = relation === "same_name" || OF_A_CONTROL_PLANE.test(issuer);
  const isMiddlebox = !isOurs && (isMiddleboxLikely || OF_AN_INSPECTION.test(issuer) || isInstalled(top));
  return { issuer, relation, kind: isMiddlebox ? "intercepted" : "unknown_ca" };
}

function relationOf(shown: readonly X509Certificate[], top: X509Certificate, ca: string | undefined): CaRelation {
  const ours = ca === undefined ? [] : certificates(ca);
  const isNamesake = (certificate: X509Certificate): boolean =>
    ours.some(({ subject }) => subject === certificate.issuer) && !signs(ours, certificate);
  if (shown.some(isNamesake)) return "same_name";
  if (shown.length === 1 && top.subject === top.issuer) return "self_signed";
  return ca === undefined ? "none_given" : "another";
}

export function unknownIssuer({ issuer: by, relation, kind }: IssuerFacts, cause: Error): DialFault {
  const facts = { by, relation };
  const message = kind === "intercepted" ? interceptedWords(facts) : caWords(facts, TAILS.outside);
  return new DialFault(kind, message, { facts, cause });
}

/** The less likely causes beside a wrong `--ca-cert`, outside and inside of inner TLS. */
const TAILS = {
  outside: { port: ", or correct the port in --server", else: "; or something on the path opens TLS" },
  inside: { port: "", else: "; or something on the path plays the server" },
} as const;

/** The words for a CA inside inner TLS, where nobody else than the server should be. */
export function innerCaWords(facts: FaultFacts): string {
  return caWords(facts, TAILS.inside);
}

function caWords({ by: issuer, relation = "another" }: FaultFacts, tail: (typeof TAILS)[keyof typeof TAILS]): string {
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

function interceptedWords({ by: issuer }: FaultFacts): string {
  return `TLS is intercepted by "${issuer}", none of our CAs: exempt the server from inspection, or go through by --outer-ca (not --inner-tls=never); if it is the server's CA: --ca-cert`;
}
