import { join } from "node:path";
import { PORTS } from "./addresses.ts";
import type { Pair } from "./pki.ts";

/**
 * A way from the control plane to the node: over a listener of the server, or (for comparison) with no culvert at all.
 */
export type CallerRoute = "uds" | "tcp" | "direct";

/** What kube-apiserver's `--egress-selector-config-file` names (README: "kube-apiserver"); JSON is YAML, too. */
export function egressOverUnixSocket(udsName: string): string {
  return egressSelector({ uds: { udsName } });
}

export function egressOverTcp({ ca, cert, key }: Pair): string {
  const tlsConfig = { caBundle: ca, clientCert: cert, clientKey: key };
  return egressSelector({ tcp: { url: `https://127.0.0.1:${PORTS.callers}`, tlsConfig } });
}

/** The client of the set that `culvert pki` wrote. */
export function callerPair(culvertPki: string): Pair {
  const file = (name: string) => join(culvertPki, name);
  return { ca: file("server-ca.crt"), cert: file("client.crt"), key: file("client.key") };
}

function egressSelector(transport: object): string {
  const connection = { proxyProtocol: "HTTPConnect", transport };
  return JSON.stringify({
    apiVersion: "apiserver.k8s.io/v1beta1",
    kind: "EgressSelectorConfiguration",
    egressSelections: [{ name: "cluster", connection }],
  });
}
