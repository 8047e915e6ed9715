import { join } from "node:path";
import { PORTS } from "./addresses.ts";
import { type CulvertLane, TUNNELS } from "./lanes.ts";
import type { Pair } from "./pki.ts";

/** The text of kube-apiserver's `--egress-selector-config-file` (docs/kubernetes.md); JSON is YAML, too. */
export function egressAlong(lane: CulvertLane, udsName: string, caller: Pair): string {
  const { protocol, transport } = TUNNELS[lane];
  return transport === "TCP" ? egressOverTcp(caller) : egressSelector(protocol, { uds: { udsName } });
}

export function egressOverTcp({ ca, cert, key }: Pair): string {
  const tlsConfig = { caBundle: ca, clientCert: cert, clientKey: key };
  return egressSelector("HTTPConnect", { tcp: { url: `https://127.0.0.1:${PORTS.callers}`, tlsConfig } });
}

/** The client of the set that `culvert pki` wrote. */
export function callerPair(culvertPki: string): Pair {
  const file = (name: string) => join(culvertPki, name);
  return { ca: file("server-ca.crt"), cert: file("client.crt"), key: file("client.key") };
}

function egressSelector(proxyProtocol: "HTTPConnect" | "GRPC", transport: object): string {
  return JSON.stringify({
    apiVersion: "apiserver.k8s.io/v1beta1",
    kind: "EgressSelectorConfiguration",
    egressSelections: [{ name: "cluster", connection: { proxyProtocol, transport } }],
  });
}
