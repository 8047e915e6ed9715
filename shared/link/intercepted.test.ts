import assert from "node:assert/strict";
import { test } from "node:test";
import { Intercepted } from "./intercepted.ts";

const said = (issuer: string | undefined): string =>
  new Intercepted(issuer, new Error("unable to verify the first certificate")).message;

test("a certificate of a control plane's other CA is asked about its port first, and inspection comes last", () => {
  for (const issuer of [
    "culvert server CA",
    "konnectivity-signer",
    "kubernetes",
    "kube-ca",
    "kubelet-signer",
    "kubelet-bootstrap-kubeconfig-signer",
    "kubeadm-ca",
    "kubermatic",
    "minikubeCA",
    "k3s-server-ca@1700000000",
  ]) {
    assert.match(
      said(issuer),
      new RegExp(`^the certificate shown is signed by "${issuer}", .*: check that the port in --server is the one for`),
    );
    assert.match(said(issuer), /--agent-port.* give it as --ca-cert; or else TLS is intercepted: .*--outer-ca/);
  }
});

test("a certificate of anybody else's CA is TLS inspection first, and the port comes last", () => {
  for (const issuer of [
    "Corp Inspection CA",
    "mitmproxy",
    "Kubelka Proxy CA",
    "Culverton Inspection",
    "mink3s",
    undefined,
  ]) {
    assert.match(said(issuer), new RegExp(`^TLS is intercepted by "${issuer ?? "unknown"}", .*--outer-ca`));
    assert.match(said(issuer), /; or, if that is the server's own CA, give it as --ca-cert, and check that the port/);
  }
});
