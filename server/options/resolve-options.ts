import { isLoopback, parseCidr } from "../../shared/address/network.ts";
import { checkPair, checkPorts, generatedId } from "../../shared/config/common-options.ts";
import { MAX_SOCKET_PATH } from "../../shared/config/listen-address.ts";
import type { Draft } from "../../shared/config/options.ts";
import { behindDefault } from "../clusters/routing-rules.ts";
import { checkReplicas, resolvePeers } from "./fleet-options.ts";
import type { rows } from "./option-rows.ts";

type ServerDraft = Draft<typeof rows>;

/** Checks the options of a server together, and fills in what follows from others. */
export function resolveOptions(draft: ServerDraft): void {
  const { values } = draft;
  if (values.maxWindow < values.initialWindow) draft.problem("--max-window must not be smaller than --initial-window.");
  checkPair(draft, ["--server-cert", values.serverCert], ["--server-key", values.serverKey]);
  if (values.clusters === "") checkCallers(draft);
  else checkClusters(draft);
  checkPair(draft, ["--cluster-cert", values.clusterCert], ["--cluster-key", values.clusterKey]);
  const { serverProxyProtocol, agentProxyProtocol, agentInsecureProxyProtocol } = values;
  const proxied = [serverProxyProtocol, agentProxyProtocol, agentInsecureProxyProtocol].some((rule) => rule !== "off");
  if (proxied && values.proxyProtocolTrustedCidrs.length === 0) {
    draft.problem("PROXY headers are believed from known balancers only: give --proxy-protocol-trusted-cidrs.");
  }
  if (values.agentPort === 0 && values.agentInsecurePort === 0) {
    draft.warn("--agent-port=0: no agent can connect to this server.");
  } else if (values.clusters === "") checkAgents(draft);
  checkInsecure(draft);
  checkHttp(draft);
  resolvePeers(draft);
  if (!/^\/[\w./~-]*$/.test(values.agentPath))
    draft.problem("--agent-path must be a plain path such as /culvert/v1/tunnel.");
  if (values.dialTimeoutMs === 0) values.dialTimeoutMs = values.connectTimeoutMs;
  if (values.dialTimeoutMs > values.connectTimeoutMs && draft.given("dialTimeoutMs")) {
    draft.warn("--dial-timeout is longer than --connect-timeout, which ends the wait first.");
  }
  checkStrategies(draft);
  checkOwnPorts(draft);
  checkReplicas(draft);
  if (values.auditRequired && values.auditLog === "") draft.problem("--audit-required needs an --audit-log.");
  if (values.auditLog === "unix:") draft.problem("--audit-log unix: needs the path of a socket: unix:/run/audit.sock.");
  if (values.serverId === "") values.serverId = generatedId();
}

function checkStrategies(draft: ServerDraft): void {
  const { values } = draft;
  if (values.proxyStrategies.length === 0) values.proxyStrategies = ["default"];
  const unreached = behindDefault(values.proxyStrategies).join(", ");
  if (unreached !== "") {
    draft.warn(
      `--proxy-strategies: default takes any agent, so ${unreached} after it has no effect: name default last.`,
    );
  }
  // With documents, each may have strategies of its own.
  if (!values.strictIdentifiers || values.clusters !== "") return;
  if (values.proxyStrategies.some((strategy) => strategy === "destHost" || strategy === "cidr")) return;
  draft.warn("--strict-identifiers has no effect: name destHost or cidr in --proxy-strategies, too.");
}

function checkOwnPorts(draft: ServerDraft): void {
  const { values } = draft;
  checkPorts(draft, [
    ["--server-port", values.serverPort, values.serverBindAddress],
    ["--http-port", values.httpPort, values.httpBindAddress],
    ["--agent-port", values.agentPort, values.agentBindAddress],
    ["--agent-insecure-port", values.agentInsecurePort, values.agentInsecureBindAddress],
    ["--peer-port", values.peerPort, values.peerBindAddress],
    ["--health-port", values.healthPort, values.healthBindAddress],
    ["--admin-port", values.adminPort, values.adminBindAddress],
  ]);
}

/** Without cluster documents, agents need what the flags say. */
function checkAgents(draft: ServerDraft): void {
  const { values } = draft;
  const showsCertificate = values.agentPort !== 0 || values.innerTls !== "never";
  if (showsCertificate && values.clusterCert === "" && values.clusterKey === "") {
    draft.problem("Agents connect over TLS: give --cluster-cert and --cluster-key.");
  }
  if (values.clusterCaCert === "" && values.authenticationAudience === "") {
    draft.problem("Agents are known by their certificates: give --cluster-ca-cert, the CA that issues them.");
  }
  if (values.agentInsecurePort !== 0 && values.innerTls === "never" && values.authenticationAudience === "") {
    draft.problem(
      "Nobody could prove himself on --agent-insecure-port, which no certificate gets through to: give --inner-tls=auto, or let tokens in (--authentication-audience).",
    );
  }
  const tokens = [values.authenticationAudience, values.agentNamespace, values.agentServiceAccount];
  if (tokens.some((value) => value !== "") && tokens.includes("")) {
    draft.problem(
      "Whose tokens count is said by --authentication-audience, --agent-namespace and --agent-service-account together: any pod can have a token.",
    );
  } else if (values.kubeconfig !== "" && values.authenticationAudience === "" && !values.enableLeaseController) {
    draft.problem(
      "--kubeconfig is for tokens of agents and for leases: give --authentication-audience or --enable-lease-controller, too, or leave it out.",
    );
  }
}

/** Every peer that reaches this port speaks to it in clear, like the balancer in front. */
function checkInsecure(draft: ServerDraft): void {
  const { agentInsecurePort, agentInsecureBindAddress: address, agentInsecureTrustedCidrs } = draft.values;
  if (agentInsecurePort === 0) {
    if (agentInsecureTrustedCidrs.length > 0) {
      draft.warn("--agent-insecure-trusted-cidrs has no effect: --agent-insecure-port is off.");
    }
    return;
  }
  if (isLoopback(address)) return;
  if (agentInsecureTrustedCidrs.length === 0) {
    draft.problem(
      "--agent-insecure-port is in clear, and open beyond this host only to known balancers: give --agent-insecure-trusted-cidrs, or leave --agent-insecure-bind-address at 127.0.0.1.",
    );
  }
  const wide = wideNetworks(agentInsecureTrustedCidrs);
  if (wide.length > 0) {
    draft.warn(
      `--agent-insecure-trusted-cidrs has ${wide.join(" and ")}, which is wider than anybody's own network: whoever reaches --agent-insecure-port speaks to it in clear, as a balancer does. Name the balancers' networks, unless a firewall or network policy keeps others out.`,
    );
  }
}

/** Clients of the HTTP proxy prove themselves by a token, which documents alone name, or over TLS by a certificate. */
function checkHttp(draft: ServerDraft): void {
  const { httpPort, httpBindAddress, clusters, serverCert } = draft.values;
  if (httpPort === 0 || clusters !== "") return;
  if (isLoopback(httpBindAddress)) {
    draft.problem(
      "--http-port on loopback is in clear, and its clients prove themselves by a token: give --clusters, with callers.token in a document.",
    );
  } else if (serverCert === "") {
    draft.problem("--http-port beyond loopback is TLS: give --server-cert and --server-key.");
  }
}

/** The TCP listener is on if --server-port or --server-cert is given; otherwise the port becomes 0. */
function checkCallers(draft: ServerDraft): void {
  const { values } = draft;
  const asked = draft.given("serverPort") || values.serverCert !== "";
  if (asked && values.serverPort === 0 && values.serverCert !== "") {
    draft.warn("--server-cert has no effect: --server-port=0 leaves the callers' TCP port off.");
  }
  if (!asked) values.serverPort = 0;
  if (values.serverPort !== 0) {
    if (values.serverCert === "" && values.serverKey === "") {
      draft.problem("--server-port is TLS: give --server-cert and --server-key.");
    }
    if (values.serverCaCert === "") {
      draft.problem("Callers on TCP are known by their certificates: give --server-ca-cert, the CA that issues them.");
    }
  } else if (values.udsName === "") {
    draft.problem(
      "Nobody could call: give --uds-name for a unix socket, or --server-cert, --server-key and --server-ca-cert for TCP on --server-port (8090).",
    );
  }
  if (Buffer.byteLength(values.udsName) > MAX_SOCKET_PATH) {
    draft.problem(`--uds-name is longer than the ${MAX_SOCKET_PATH} bytes a socket path can have.`);
  }
}

/** Settings of one cluster belong in its document; a certificate in the flags is for clusters without their own. */
function checkClusters(draft: ServerDraft): void {
  const { values } = draft;
  const elsewhere: [flag: string, given: boolean, key: string][] = [
    ["--uds-name", values.udsName !== "", "callers.uds"],
    ["--caller-identities", values.callerIdentities.length > 0, "callers.identities"],
    ["--agent-identities", values.agentIdentities.length > 0, "agents.identities"],
    ["--authentication-audience", values.authenticationAudience !== "", "agents.token"],
    ["--allowed-destination", values.allowedDestination.length > 0, "allowedDestinations"],
  ];
  for (const [flag, given, key] of elsewhere) {
    if (given) draft.problem(`${flag} is one cluster's: with --clusters, say it in the cluster's document (${key}).`);
  }
  for (const [cert, ca, flags] of [
    [values.clusterCert, values.clusterCaCert, "--cluster-cert and --cluster-ca-cert"],
    [values.serverCert, values.serverCaCert, "--server-cert and --server-ca-cert"],
  ] as const) {
    if ((cert === "") !== (ca === "")) draft.problem(`${flags} belong together: give both, or neither.`);
  }
}

/** The widest private networks: 10.0.0.0/8 (RFC 1918 §3) and fc00::/7 (RFC 4193 §3.1). */
const WIDEST_PREFIX = { ipv4: 8, ipv6: 7 } as const;

/** The networks that are wider than any private one, and so contain a part of the Internet. */
export function wideNetworks(cidrs: readonly string[]): string[] {
  return cidrs.filter((cidr) => {
    const { network, prefix } = parseCidr(cidr);
    return prefix < WIDEST_PREFIX[network.family === "ipv4" ? "ipv4" : "ipv6"];
  });
}
