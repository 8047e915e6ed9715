import type { PeerCertificate } from "node:tls";
import { printable } from "../outcomes.ts";

/**
 * Names of authorities that no company's TLS inspection bears: those of `culvert pki`, of Konnectivity's installers
 * (konnectivity-signer) and of Kubernetes (kubernetes, kube-…, kubelet-signer, k3s-server-ca@…). Whole words: what only
 * begins like one may be anybody's name.
 */
const WORDS = ["culvert", "konnectivity", "kube", "kubeadm", "kubelet", "kubermatic", "kubernetes", "minikube", "k3s"];
/** A word may have its CA stuck to it, as minikubeCA. */
const OF_A_CONTROL_PLANE = new RegExp(`(?:^|[^a-z0-9])(?:${WORDS.join("|")})(?:ca)?(?![a-z0-9])`, "i");

/** Is it more likely another port, or another CA, of the control plane that is meant than somebody in between? */
export function isOfControlPlane(issuer: string): boolean {
  return OF_A_CONTROL_PLANE.test(issuer);
}

/** Somebody in between ends the TLS, or the server is not the one that is meant: the CAs do not know its certificate. */
export class Intercepted extends Error {
  override readonly name = "Intercepted";
  readonly code: string | undefined;
  /** Who has signed what was shown, as it says itself. */
  readonly issuer: string;

  constructor(issuer: string | undefined, cause: NodeJS.ErrnoException) {
    const by = issuer ?? "unknown";
    super(isOfControlPlane(by) ? otherPort(by) : otherBox(by), { cause });
    this.code = cause.code;
    this.issuer = by;
  }
}

const CHECK_PORT = "check that the port in --server is the one for agents";
const GO_THROUGH =
  "have the server excepted from TLS inspection, or go through it with --outer-ca (and not --inner-tls=never)";

/** The more likely reason first. */
function otherPort(by: string): string {
  const port = `${CHECK_PORT} (the server's --agent-port): the one for callers has a certificate of another CA`;
  return `the certificate shown is signed by "${by}", which is none of our CAs and has the name of a control plane's: ${port}; or, if that is the server's own CA for agents, give it as --ca-cert; or else TLS is intercepted: ${GO_THROUGH}`;
}

function otherBox(by: string): string {
  return `TLS is intercepted by "${by}", which has signed the certificate shown and is none of our CAs: ${GO_THROUGH}; or, if that is the server's own CA, give it as --ca-cert, and ${CHECK_PORT}`;
}

/** `CN`, or else the organisation, of a certificate's issuer; the words are a stranger's. */
export function issuerOf(certificate: PeerCertificate): string | undefined {
  const { CN, O } = certificate?.issuer ?? {};
  const name = [CN ?? O].flat()[0];
  return name === undefined ? undefined : printable(name, 100);
}
