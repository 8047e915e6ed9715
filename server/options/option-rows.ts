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
  udsMode: option.fileMode("0660", "Permission bits of the unix socket: whoever may write to it is a caller."),
  deleteExistingUdsFile: option.boolean(
    true,
    "Remove a stale socket file. One that a live server owns is never removed.",
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
    "CRLs (PEM, one or several) of the CAs by which callers, agents and other servers are known, read again when the file changes: open connections and tunnels of a certificate that is revoked then end. A cluster's document may have others (callers.crl, agents.crl). Empty: nothing is revoked.",
  ),
  callerIdentities: option.list(
    [],
    "Callers that are let in: CN=, O=, DNS= or URI= patterns, * as wildcard; several joined by a comma must all match. Empty: every certificate of --server-ca-cert but Konnectivity's agents.",
    { separator: ";", item: identityPattern },
  ),
  httpPort: option.port(
    0,
    "Port of an HTTP proxy for callers such as Prometheus: CONNECT, and requests for whole http:// URLs. Its clients send Proxy-Authorization: Basic CLUSTER:TOKEN, or Bearer. In clear on a loopback address; on any other over TLS, with the callers' certificates. 0: off.",
  ),
  httpBindAddress: option.address("127.0.0.1", "Address of --http-port. Empty: all interfaces."),
  serverProxyProtocol: option.oneOf(
    PROXY_PROTOCOL,
    "off",
    "PROXY protocol (version 1 or 2) on the callers' TCP port: a load balancer in front sends the address of its client. Believed from --proxy-protocol-trusted-cidrs only.",
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
    "Port for agents without TLS, for a load balancer in front that ends their TLS. It passes no client certificate on: agents need a token, which the load balancer can read, or inner TLS. The cluster is found by the Host header. 0: off.",
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
    "PROXY protocol on --agent-insecure-port. X-Forwarded-For is not believed.",
  ),
  proxyProtocolTrustedCidrs: option.list(
    [],
    "Addresses of load balancers whose PROXY headers are believed. From other addresses they are refused.",
    { item: cidr },
  ),
  agentIdentities: option.list(
    [],
    "Agents that are let in, patterns as in --caller-identities. Empty: every certificate of --cluster-ca-cert but Konnectivity's callers.",
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
    "How to reach the Kubernetes API that verifies the tokens and has the Leases of --enable-lease-controller. Empty: that of this pod's own cluster.",
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
    "Agents whose TLS connection ends at a middlebox (TLS inspection, a balancer) may prove themselves by a second TLS inside it: never, auto, or always. A cluster's document may say otherwise (agents.innerTls).",
  ),
  konnectivityAgents: option.boolean(
    true,
    "Agents of Konnectivity may connect to --agent-port beside culvert's own (docs/konnectivity.md). With --clusters each document says whether its agents may (agents.konnectivity).",
  ),
  proxyStrategies: option.list<Strategy>(
    ["default"],
    "How agents are chosen, in order: destHost (an agent whose identifiers name the target's host), cidr (the longest network that it is in), defaultRoute (agents of the default route), default (any agent). The first that has an agent chooses. A cluster's document may have others (agents.strategies).",
    { konnectivity: "--proxy-strategies", item: parseStrategy },
  ),
  strictIdentifiers: option.boolean(
    false,
    "If an agent claims a target by destHost or cidr, other agents are never asked for it: while no agent that claims it is connected, the answer is 503. Claims are remembered from the start of the server on; a document names them beforehand (agents.claims).",
  ),
  allowedDestination: option.list(
    [],
    "HOST:PORT that agents may reach through this server (their --target), such as kube-apiserver. This server resolves and dials it. With --clusters each document says it (allowedDestinations). Empty: nothing.",
    { item: (text) => formatTarget(parseTarget(text)) },
  ),
  maxAgents: option.integer(
    100,
    "Agents of one cluster that are connected at once. It limits what a stolen credential can take. A cluster's document may have another number (agents.maxAgents).",
    { min: 1, max: 100_000 },
  ),
  keepaliveMs: option.duration("20s", "Interval of pings to agents; 2.5 of them without a byte end a tunnel.", {
    konnectivity: "--keepalive-time",
    min: "100ms",
    max: "1h",
  }),
  linkGraceMs: option.duration(
    "30s",
    "How long a tunnel that has lost its connection waits for the agent's next one; its streams stand still meanwhile. 0: they end with the connection.",
    { max: "1h" },
  ),
  helloTimeoutMs: option.duration(
    "5s",
    "From the upgrade to the agent's hello. Of one cluster, twice as many connections as it may have agents (at least 16) may wait for theirs; one more gets 503.",
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
    "How long an agent that has not accepted a new stream may be silent, before another agent is asked; half of it more, if there is no other.",
    {
      min: "1ms",
    },
  ),
  agentWaitMs: option.duration(
    "1s",
    "How long a CONNECT waits while no agent is connected. For one that has only lost its connection, half of --connect-timeout at least.",
  ),
  establishedGapMs: option.duration(
    "100ms",
    "The first bytes of a target that speaks first are held back this long after the 200 on a unix socket, and after the DIAL_RSP of gRPC: kube-apiserver fails if one read returns both.",
  ),
  handshakeTimeoutMs: option.duration(
    "10s",
    "For a TLS handshake, and then for the upgrade of an agent together with its inner TLS.",
    { min: "1ms" },
  ),
  maxHandshakes: option.integer(
    2_048,
    "On each port, TLS handshakes in progress at once, and connections that have said nothing. One more drops the oldest: real ones take milliseconds.",
    { min: 1, max: 1_000_000 },
  ),
  maxWaitingHandshakes: option.integer(
    8_192,
    "On each port, clients that wait for the server to begin their TLS handshake; it does so in order, a few at a time. One more drops the oldest of the network (IPv4 /32, IPv6 /64) that has most.",
    { min: 1, max: 1_000_000 },
  ),
  headerTimeoutMs: option.duration("10s", "From the accepted connection to its complete request header.", {
    min: "1ms",
  }),
  maxWaitingConnections: option.integer(
    2_048,
    "Connections without a complete request header at once, after TLS: on each port of agents, on each unix socket, and of each cluster on the callers' port; four times as many on all TCP ports together. One more drops the oldest of the network (IPv4 /32, IPv6 /64) that has most: real callers and agents take milliseconds.",
    { min: 1, max: 1_000_000 },
  ),
  maxTokenVerifications: option.integer(
    256,
    "Agents of one cluster whose token is being verified at once, which may take seconds; and as many callers. One more drops the oldest of the network (IPv4 /32, IPv6 /64) that has most, which is told when to come back.",
    { min: 1, max: 1_000_000 },
  ),
  maxInnerHandshakes: option.integer(
    256,
    "Unauthenticated agents of one cluster in the inner TLS handshake at once. As many more may wait before their hello. One more drops the oldest of the network (IPv4 /32, IPv6 /64) that has most.",
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
    "After SIGTERM, how long the server still accepts everything while it is not ready, so that load balancers notice before its ports close. It should be longer than their check takes; 0 where a preStop hook waits.",
    { max: "10m" },
  ),
  drainTimeoutMs: option.duration("30s", "After SIGTERM, how long open connections may go on.", {
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
    "HOST:PORT of the admin ports of the other servers, which the status page asks while somebody looks at it. This server may be among them.",
    { item: (text) => formatTarget(parseTarget(text)) },
  ),
  readyNeedsAgent: option.boolean(
    false,
    "Ready only while an agent is connected, or other servers can be asked (--directory): Konnectivity's rule, which can deadlock a rolling update.",
  ),
  readyNeedsTokenReview: option.boolean(
    false,
    "Ready only after an API server has answered a TokenReview, where clusters use them. Not beside the API server itself: its pod would wait for this one.",
  ),
});

const audit = section("Audit trail", {
  auditLog: option.string(
    "",
    "Where the audit trail goes: a file (opened again at SIGHUP), - for stdout, or unix:PATH, a socket at which a collector listens. A JSON line for each decision about a CONNECT or an agent, and one for its end (docs/audit.md). Empty: none.",
  ),
  auditRequired: option.boolean(
    false,
    "A CONNECT gets its 200 when its decision is in the audit trail, and 503 while that cannot be written; the server is not ready then.",
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
