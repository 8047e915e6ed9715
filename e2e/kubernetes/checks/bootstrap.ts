import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import * as x509 from "@peculiar/x509";
import { waitFor } from "../../harness/wait.ts";
import { expect, type Seen, type Stage } from "../check.ts";
import type { Kubectl } from "../world/kubectl.ts";
import { onNode } from "./node-port.ts";

const NODE = "bootstrapped";
const GROUP = "system:bootstrappers";
const P256 = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const HOUR_MS = 3_600_000;
/** A kube-apiserver sees a new token a moment later. */
const TOKEN_READ_MS = 30_000;
const SIGNED_MS = 30_000;

/**
 * TLS bootstrapping of a kubelet that has no certificate yet: with a token it asks for one, waits until it is signed,
 * and registers its node with it. The controllers of a control plane are played here.
 */
export async function bootstrap(stage: Stage): Promise<Seen> {
  const { kubectl, world } = stage;
  using folder = world.folder();
  const [id, secret] = [randomBytes(3).toString("hex"), randomBytes(8).toString("hex")];
  await kubectl.create(tokenObjects(id, secret));
  const kubelet = onNode(stage, folder.file("bootstrap"), { token: `${id}.${secret}` });
  const keys = await crypto.subtle.generateKey(P256, true, ["sign", "verify"]);
  const request = await x509.Pkcs10CertificateRequestGenerator.create({
    ...{ name: `O=system:nodes, CN=system:node:${NODE}`, keys, signingAlgorithm: P256 },
  });
  try {
    const isAsked = async () => (await kubelet.run(["create", "-f", "-"], { stdin: askFor(request) })).code === 0;
    await waitFor(isAsked, { deadlineMs: TOKEN_READ_MS, everyMs: 200, what: "a request for a certificate" });
    const certificate = await signed(stage, kubelet, request);
    const [cert, key] = [folder.file("kubelet.crt"), folder.file("kubelet.key")];
    writeFileSync(cert, certificate);
    writeFileSync(key, pemOf(await crypto.subtle.exportKey("pkcs8", keys.privateKey)), { mode: 0o600 });
    const node = onNode(stage, folder.file("kubelet"), { "client-certificate": cert, "client-key": key });
    const object = JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: NODE } });
    await node.must(["create", "-f", "-"], { stdin: object });
    const { stdout } = await node.must(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
    expect(stdout === `system:node:${NODE}`, "the name in the certificate", stdout);
    const registered = await kubectl.must(["get", "node", NODE, "-o", "name"]);
    return { printed: `${registered.stdout.trim()}, registered by ${stdout}` };
  } finally {
    await kubectl.run(["delete", "node,csr", NODE, "--ignore-not-found"]);
    await kubectl.run(["delete", "clusterrolebinding", GROUP, "--ignore-not-found"]);
    await kubectl.run(["-n", "kube-system", "delete", "secret", `bootstrap-token-${id}`, "--ignore-not-found"]);
  }
}

/** A bootstrap token, and what its holders may do. */
function tokenObjects(id: string, secret: string): object[] {
  return [
    {
      ...{ apiVersion: "v1", kind: "Secret", type: "bootstrap.kubernetes.io/token" },
      metadata: { name: `bootstrap-token-${id}`, namespace: "kube-system" },
      stringData: { "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true" },
    },
    {
      ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name: GROUP } },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "system:node-bootstrapper" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: GROUP }],
    },
  ];
}

function askFor(request: x509.Pkcs10CertificateRequest): string {
  return JSON.stringify({
    ...{ apiVersion: "certificates.k8s.io/v1", kind: "CertificateSigningRequest", metadata: { name: NODE } },
    spec: {
      request: Buffer.from(request.toString("pem")).toString("base64"),
      signerName: "kubernetes.io/kube-apiserver-client-kubelet",
      usages: ["digital signature", "client auth"],
    },
  });
}

/** The certificate, which the kubelet gets by its watch once it is approved and signed. */
async function signed(
  { kubectl, world }: Stage,
  kubelet: Kubectl,
  request: x509.Pkcs10CertificateRequest,
): Promise<string> {
  await using watching = kubelet.start(["get", "csr", NODE, "--watch", "-o", "jsonpath={.status.certificate}{'\\n'}"]);
  await kubectl.must(["certificate", "approve", NODE]);
  const { cert, key } = world.pki.kubernetes;
  const issuer = new x509.X509Certificate(readFileSync(cert, "utf8"));
  const pkcs8 = readFileSync(key, "utf8").replace(/-----.*-----|\s/g, "");
  const certificate = await x509.X509CertificateGenerator.create({
    ...{ subject: request.subjectName, issuer: issuer.subjectName, publicKey: request.publicKey },
    ...{ notBefore: new Date(Date.now() - HOUR_MS), notAfter: new Date(Date.now() + HOUR_MS) },
    signingKey: await crypto.subtle.importKey("pkcs8", Buffer.from(pkcs8, "base64"), P256, false, ["sign"]),
    signingAlgorithm: P256,
    extensions: [new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.clientAuth])],
  });
  const status = { certificate: Buffer.from(`${certificate.toString("pem")}\n`).toString("base64") };
  const patch = JSON.stringify({ status });
  await kubectl.must(["patch", "csr", NODE, "--subresource=status", "--type=merge", "-p", patch]);
  const arrived = () => watching.log.find((line) => line !== "");
  const text = await waitFor(arrived, { deadlineMs: SIGNED_MS, what: "a certificate, by a watch" });
  return Buffer.from(text, "base64").toString();
}

function pemOf(pkcs8: ArrayBuffer): string {
  return `-----BEGIN PRIVATE KEY-----\n${Buffer.from(pkcs8).toString("base64")}\n-----END PRIVATE KEY-----\n`;
}
