import { parseCidr } from "../../shared/address/network.ts";
import { formatTarget, parseTarget } from "../../shared/address/target.ts";
import {
  adminAllowedHosts,
  adminBindAddress,
  healthShowsClusters,
  logRows,
  streamRows,
  tlsRows,
  tracingRows,
} from "../../shared/config/common-options.ts";
import { option, section } from "../../shared/config/options.ts";
import { TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { INNER_TLS_RULES } from "../clusters/access-rules.ts";
import { parseStrategy, type Strategy } from "../clusters/routing-rules.ts";
import { identityPattern, peerRows, replicas } from "./fleet-options.ts";

const PROXY_PROTOCOL = ["off", "optional", "required"] as const;

const clusters = section("Clusters", {
  clusters: option.string(
    "",
    "File, or folder of *.yaml files, with one YAML document for each cluster; read again when they change. Empty: these flags are the one cluster.",
  ),
});

const callers = section("Callers", {
  udsName: option.string("", "Path of the unix socket for callers. Empty: no socket.", { konnectivity: "--uds-name" }),
  udsMode: option.fileMode(
    "0660",
    "Permission bits of the unix socket: every process that may write to it is a caller.",
  ),
  deleteExistingUdsFile: option.boolean(
    true,
    "Remove a stale socket file. The file of a live server is never removed.",
    { konnectivity: "--delete-existing-uds-file" },
  ),
  serverPort: option.port(
    8090,
    "TCP port for callers, mutual TLS. It is open when this, --server-cert or --clusters is given; 0: off.",
    { konnectivity: "--server-port", defaultText: "8090 with --server-cert or --clusters, else off" },
  ),
  serverBindAddress: option.address("", "Address of the callers' TCP port. Empty: all interfaces.", {
    konnectivity: "--server-bind-address",
  }),
  serverCert: option.file("", "Certificate (PEM) shown to callers.", { konnectivity: "--server-cert" }),
  serverKey: option.file("", "Private key (PEM) of --server-cert.", { konnectivity: "--server-key" }),
  serverCaCert: option.file("", "CA certificates (PEM) that callers' certificates must come from.", {
    konnectivity: "--server-ca-cert",
  }),
  clientCrlFile: option.file(
    "",
    "CRLs (PEM) of the CAs that sign certificates of callers, agents and other servers. Read again when the file changes: open connections and tunnels of a revoked certificate then end. A cluster's document may have its own (callers.crl, agents.crl). Empty: no certificate is revoked.",
  ),
  callerIdentities: option.list(
    [],
    "Callers that are admitted: CN=, O=, DNS= or URI= patterns, * as wildcard; several joined by a comma must all match. Empty: every certificate of --server-ca-cert, except those of Konnectivity's agents.",
    { separator: ";", item: identityPattern },
  ),
  httpPort: option.port(
    0,
    "Port of an HTTP proxy for callers such as Prometheus: CONNECT, and requests for whole http:// URLs. 0: off. Its clients send Proxy-Authorization: Basic CLUSTER:TOKEN, or Bearer. It speaks plain HTTP on a loopback address, and TLS with the callers' certificates on any other.",
  ),
  httpBindAddress: option.address("127.0.0.1", "Address of --http-port. Empty: all interfaces."),
  serverProxyProtocol: option.oneOf(
    PROXY_PROTOCOL,
    "off",
    "PROXY protocol (version 1 or 2) on the callers' TCP port: a load balancer in front sends the address of its client. Accepted from --proxy-protocol-trusted-cidrs only.",
  ),
  frontendKeepaliveMs: option.duration("1m", "TCP keepalive of callers' connections. 0: off.", {
    konnectivity: "--frontend-keepalive-time",
  }),
});

const agents = section("Agents", {
  agentPort: option.port(8091, "TCP port for agents. 0: off.", { konnectivity: "--agent-port" }),
  agentBindAddress: option.address("", "Address of the agents' port. Empty: all interfaces.", {
    konnectivity: "--agent-bind-address",
  }),
  clusterCert: option.file("", "Certificate (PEM) shown to agents.", { konnectivity: "--cluster-cert" }),
  clusterKey: option.file("", "Private key (PEM) of --cluster-cert.", { konnectivity: "--cluster-key" }),
  clusterCaCert: option.file("", "CA certificates (PEM) that agents' certificates must come from.", {
    konnectivity: "--cluster-ca-cert",
  }),
  agentProxyProtocol: option.oneOf(
    PROXY_PROTOCOL,
    "off",
    "PROXY protocol on the agents' port: off, optional, or required.",
  ),
  agentInsecurePort: option.port(
    0,
    "Port for agents without TLS, for a load balancer in front that ends their TLS. 0: off. The load balancer passes no client certificate on: agents need a token, which it can read, or inner TLS. The Host header selects the cluster.",
  ),
  agentInsecureBindAddress: option.address(
    "127.0.0.1",
    "Address of --agent-insecure-port. Empty: all interfaces. Beyond loopback it needs --agent-insecure-trusted-cidrs.",
  ),
  agentInsecureTrustedCidrs: option.list(
    [],
    "Addresses of balancers that may connect to --agent-insecure-port, beside loopback. Connections of others are closed at once.",
    { item: cidr },
  ),
  agentInsecureProxyProtocol: option.oneOf(
    PROXY_PROTOCOL,
    "off",
    "PROXY protocol on --agent-insecure-port. X-Forwarded-For is ignored.",
  ),
  proxyProtocolTrustedCidrs: option.list(
    [],
    "Addresses of load balancers whose PROXY headers are accepted. Connections from other addresses with such a header are refused.",
    { item: cidr },
  ),
  agentIdentities: option.list(
    [],
    "Agents that are admitted, patterns as in --caller-identities. Empty: every certificate of --cluster-ca-cert, except those of Konnectivity's callers.",
    { separator: ";", item: identityPattern },
  ),
  authenticationAudience: option.string(
    "",
    "Agents may authenticate by a service account token for this audience, which the Kubernetes API verifies (TokenReview). Empty: by certificate only.",
    { konnectivity: "--authentication-audience" },
  ),
  agentNamespace: option.string("", "Namespace of the agents' service account.", { konnectivity: "--agent-namespace" }),
  agentServiceAccount: option.string("", "Name of the agents' service account.", {
    konnectivity: "--agent-service-account",
  }),
  kubeconfig: option.file(
    "",
    "Kubeconfig of the Kubernetes API that verifies tokens and has the Leases of --enable-lease-controller. Empty: the API of this pod's own cluster.",
    { konnectivity: "--kubeconfig" },
  ),
  agentPath: option.string(TUNNEL_PATH, "Path of the WebSocket that agents ask for."),
  agentAllowedOrigins: option.list(
    [],
    "Requests to the agents' ports with an Origin header are refused, except with these values. Agents send no Origin; browsers do, for any page.",
  ),
  innerTls: option.oneOf(
    INNER_TLS_RULES,
    "never",
    "Agents whose TLS connection ends at a middlebox (TLS inspection, a balancer) may authenticate by a second TLS inside it: never, auto, or always. A cluster's document may have its own value (agents.innerTls).",
  ),
  konnectivityAgents: option.boolean(
    true,
    "Agents of Konnectivity may connect to --agent-port beside culvert's own (docs/konnectivity.md). With --clusters they need agents.konnectivity in the cluster's document.",
  ),
  proxyStrategies: option.list<Strategy>(
    ["default"],
    "How agents are chosen, in order; the first strategy that has an agent for the target chooses. destHost: an agent whose identifiers contain the target's host. cidr: the agent with the longest network that contains its address. defaultRoute: agents of the default route. default: any agent. A cluster's document may have its own (agents.strategies).",
    { konnectivity: "--proxy-strategies", item: parseStrategy },
  ),
  strictIdentifiers: option.boolean(
    false,
    "If an agent claims a target by destHost or cidr, other agents are never asked for it: while no such agent is connected, the answer is 503. The server remembers claims from its start on; a document can list them beforehand (agents.claims).",
  ),
  allowedDestination: option.list(
    [],
    "HOST:PORT that agents may reach through this server (their --target), such as kube-apiserver. Empty: none. This server resolves and dials it. With --clusters, use allowedDestinations of the cluster's document.",
    { item: (text) => formatTarget(parseTarget(text)) },
  ),
  maxAgents: option.integer(
    100,
    "Agents of one cluster that may be connected at once. It limits the damage of a stolen credential. A cluster's document may have another number (agents.maxAgents).",
    { min: 1, max: 100_000 },
  ),
  keepaliveMs: option.duration("20s", "Interval of pings to agents; 2.5 of them without a byte end a tunnel.", {
    konnectivity: "--keepalive-time",
    min: "100ms",
    max: "1h",
  }),
  linkGraceMs: option.duration(
    "30s",
    "How long a tunnel that has lost its connection waits for the agent's next one; its streams pause meanwhile. 0: streams end with the connection.",
    { max: "1h" },
  ),
  helloTimeoutMs: option.duration(
    "5s",
    "From the upgrade to the agent's hello. In each cluster twice as many connections as it may have agents (at least 16) may wait for their hello; further ones get 503.",
    { min: "1ms" },
  ),
});

const bounds = section("Deadlines and bounds", {
  connectTimeoutMs: option.duration("8s", "Every CONNECT is answered within this time; webhooks give up at 10s.", {
    min: "1ms",
  }),
  dialTimeoutMs: option.duration(
    "4s",
    "The part of --connect-timeout that the agent has to reach the target. 0: all of it.",
    { konnectivity: "--backend-dial-timeout" },
  ),
  agentAckTimeoutMs: option.duration(
    "2s",
    "How long an agent that has not accepted a new stream may be silent before another agent is asked. It is one and a half times as long if there is no other.",
    {
      min: "1ms",
    },
  ),
  agentWaitMs: option.duration(
    "1s",
    "How long a CONNECT waits while no agent is connected. If an agent has only lost its connection, it waits at least half of --connect-timeout.",
  ),
  establishedGapMs: option.duration(
    "100ms",
    "If a target speaks first, its bytes are held back this long after the 200 on a unix socket, and after the DIAL_RSP of gRPC. kube-apiserver fails if one read returns both.",
  ),
  handshakeTimeoutMs: option.duration(
    "10s",
    "For a TLS handshake, and then for the upgrade of an agent together with its inner TLS.",
    { min: "1ms" },
  ),
  maxHandshakes: option.integer(
    2_048,
    "TLS handshakes in progress at once on each port, and connections that have sent nothing. A further one drops the oldest: real ones take milliseconds.",
    { min: 1, max: 1_000_000 },
  ),
  maxWaitingHandshakes: option.integer(
    8_192,
    "Clients on each port that wait for their TLS handshake; the server begins handshakes in order, a few at a time. A further client drops the oldest of the network (IPv4 /32, IPv6 /64) that has most.",
    { min: 1, max: 1_000_000 },
  ),
  headerTimeoutMs: option.duration("10s", "From the accepted connection to its complete request header.", {
    min: "1ms",
  }),
  maxWaitingConnections: option.integer(
    2_048,
    "Connections without a complete request header at once, after TLS: on each agents' port, on each unix socket, and of each cluster on the callers' port. All TCP ports together may have four times as many. A further one drops the oldest of the network (IPv4 /32, IPv6 /64) that has most: real callers and agents take milliseconds.",
    { min: 1, max: 1_000_000 },
  ),
  maxTokenVerifications: option.integer(
    256,
    "Agents of one cluster whose token is being verified at once, which may take seconds; and as many callers. A further one drops the oldest of the network (IPv4 /32, IPv6 /64) that has most, with a time for its next attempt.",
    { min: 1, max: 1_000_000 },
  ),
  maxInnerHandshakes: option.integer(
    256,
    "Unauthenticated agents of one cluster in the inner TLS handshake at once. As many more may wait before their hello. A further one drops the oldest of the network (IPv4 /32, IPv6 /64) that has most.",
    { min: 1, max: 1_000_000 },
  ),
  headerLimit: option.size("16KiB", "Largest request header.", { min: "1KiB", max: "1MiB" }),
  listenBacklog: option.integer(
    4_096,
    "Connections that the kernel holds before they are accepted. If it is too small, Go callers on a unix socket get EAGAIN.",
    { min: 1, max: 65_535 },
  ),
  maxPendingConnects: option.integer(4_096, "CONNECTs waiting for an answer at once; more get 503.", {
    min: 1,
    max: 1_000_000,
  }),
  shutdownDelayMs: option.duration(
    "0s",
    "After SIGTERM, how long the server still accepts everything while it is not ready, so that load balancers notice before its ports close. Choose more than their check takes, or 0 if a preStop hook waits.",
    { max: "10m" },
  ),
  drainTimeoutMs: option.duration("30s", "After SIGTERM, how long open connections may continue.", {
    konnectivity: "--graceful-shutdown-timeout",
  }),
});

const windows = section("Streams and memory", {
  initialWindow: option.size(
    "64KiB",
    "Bytes that a new stream may receive before its reader has read any, at both ends of every tunnel of this server. " +
      "While memory is short it is 16KiB.",
    { min: "16KiB", max: "16MiB" },
  ),
});

const operations = section("Health and administration", {
  serverId: option.identifier("", "Name of this server in logs and towards agents.", {
    konnectivity: "--server-id",
    environment: "PROXY_SERVER_ID",
    defaultText: "host name and a random suffix",
  }),
  healthPort: option.port(8092, "Port of /healthz, /livez, /readyz and /metrics. 0: off.", {
    konnectivity: "--health-port",
  }),
  healthBindAddress: option.address("", "Address of the health port. Empty: all interfaces.", {
    konnectivity: "--health-bind-address",
  }),
  healthShowsClusters,
  adminPort: option.port(8095, "Port of /status, and of all that the health port answers. 0: off.", {
    konnectivity: "--admin-port",
  }),
  adminBindAddress,
  adminAllowedHosts,
  adminUi: option.boolean(
    true,
    "Serve the status page for browsers at /ui/ on the admin port (docs/status-page.md). It is loaded with the first request.",
  ),
  adminPeers: option.list(
    [],
    "HOST:PORT of the admin ports of the other servers, which the status page asks while it is open. This server may be among them.",
    { item: (text) => formatTarget(parseTarget(text)) },
  ),
  readyNeedsAgent: option.boolean(
    false,
    "Ready only while an agent is connected, or other servers can be asked (--directory): Konnectivity's rule, which can deadlock a rolling update.",
  ),
  readyNeedsTokenReview: option.boolean(
    false,
    "Ready only after an API server has answered a TokenReview, if clusters use them. Do not set it beside the API server itself: the two pods would wait for each other.",
  ),
});

const audit = section("Audit trail", {
  auditLog: option.string(
    "",
    "Destination of the audit trail: a file (opened again at SIGHUP), - for stdout, or unix:PATH, the socket of a collector. Empty: no trail. It has a JSON line for each decision about a CONNECT or an agent, and another for its end (docs/audit.md).",
  ),
  auditRequired: option.boolean(
    false,
    "A CONNECT gets its 200 only when its decision is in the audit trail, and 503 while the trail cannot be written; the server is not ready then.",
  ),
});

export const rows = {
  ...clusters,
  ...callers,
  ...agents,
  ...peerRows,
  ...bounds,
  ...windows,
  ...streamRows,
  ...tlsRows,
  ...replicas,
  ...operations,
  ...audit,
  ...logRows,
  ...tracingRows,
};

function cidr(text: string): string {
  parseCidr(text);
  return text;
}
