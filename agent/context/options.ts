import { isIP } from "node:net";
import { parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { parseCidr } from "../../shared/address/network.ts";
import { parseRule } from "../../shared/address/target.ts";
import {
  AGENT_ONLY,
  adminAllowedHosts,
  adminBindAddress,
  checkPair,
  checkPorts,
  defineService,
  generatedId,
  logRows,
  streamRows,
  tlsRows,
  tracingRows,
} from "../../shared/config/common-options.ts";
import { type Draft, type OptionsOf, option, section } from "../../shared/config/options.ts";
import { parseProxyUrl } from "../../shared/dial/proxy-route.ts";
import { formatDestinationPort, parseDestinationPort } from "./destinations.ts";
import { parseHostPort, parseServerUrl, repeatedServer } from "./servers.ts";

const server = section("The server", {
  server: option.list(
    [],
    "URL of a server, wss://host[:port][/path]; port 443 and path /culvert/v1/tunnel when absent. Or wss+srv://_service._tcp.name[/path], whose SRV records say hosts and ports; certificates are verified for the name after the labels. With several, the agent keeps a tunnel to each, and none of them depends on another.",
  ),
  uplinks: option.string(
    "all",
    "Number of servers to keep a tunnel to: a number, or all. all: one tunnel for each URL; with fewer than 4 URLs, up to 4 servers found by DNS or announced by the servers (--server-count). A number: that many tunnels, or fewer if the servers announce fewer. The agent finds servers by the URLs of --server, by their addresses in DNS, and behind one address by dialling it repeatedly.",
    { defaultText: "all" },
  ),
  serverAddress: option.string(
    "",
    "HOST[:PORT] to dial. The name in --server is still used for SNI and verification. With one server only.",
  ),
  proxyServerHost: option.address("", "Host of the server, in place of --server.", {
    konnectivity: "--proxy-server-host",
  }),
  proxyServerPort: option.port(8091, "Port of the server, with --proxy-server-host.", {
    konnectivity: "--proxy-server-port",
  }),
  caCert: option.file("", "CA certificates (PEM) that the server's certificate must come from.", {
    konnectivity: "--ca-cert",
    defaultText: "the CAs that Node brings",
  }),
  agentCert: option.file("", "Certificate (PEM) of this agent.", { konnectivity: "--agent-cert" }),
  agentKey: option.file("", "Private key (PEM) of --agent-cert.", { konnectivity: "--agent-key" }),
  outerCa: option.string(
    "",
    "CA certificates (PEM) of a middlebox that opens TLS (TLS inspection, a balancer), or system for the CAs that Node brings. Empty: the agent does not use such a path. Behind the middlebox agent and server authenticate by a second TLS, which it cannot read.",
  ),
  innerTls: option.oneOf(
    ["always", "auto", "never"],
    "auto",
    "When the second TLS inside is used: always, never, or (auto) if the server's certificate is not from --ca-cert but from --outer-ca.",
  ),
  serviceAccountTokenPath: option.file(
    "",
    "File with a service account token, in place of --agent-cert or together with it. It is read again for each connection, and sent to the server only.",
    { konnectivity: "--service-account-token-path" },
  ),
  agentId: option.identifier("", "Name of this agent. Two agents of one identity must not share it.", {
    konnectivity: "--agent-id",
    environment: "PROXY_AGENT_ID",
    defaultText: "host name and a random suffix",
  }),
  cluster: option.identifier(
    "",
    "Cluster that this agent is meant to serve. The server refuses the agent if its certificate or token is another cluster's.",
  ),
  agentIdentifiers: option.list(
    [],
    "Targets that this agent serves, for servers that choose agents by them (--proxy-strategies). Forms are ipv4=, ipv6=, host=, cidr= and default-route=true, joined by & as in a URL's query. Several of each may be given.",
    { konnectivity: "--agent-identifiers", separator: ";" },
  ),
  handshakeTimeoutMs: option.duration(
    "10s",
    "How long one attempt to connect may take: TCP, TLS, upgrade and welcome together.",
    {
      min: "1ms",
    },
  ),
  keepaliveMs: option.duration(
    "20s",
    "Interval of pings; the smaller of both ends is used, and 2.5 of them without a byte end a tunnel. Make it shorter if a middlebox cuts connections that are silent for less.",
    {
      konnectivity: "--keepalive-time",
      min: "100ms",
      max: "1h",
    },
  ),
  maxCarrierAgeMs: option.duration(
    "0s",
    "Maximum age of a connection. About 10 % earlier the agent opens a new one and moves the tunnel to it. 0: only if a middlebox has cut connections at a certain age. Streams do not notice the change, but it costs both ends a handshake.",
    { min: "1s", orZero: true },
  ),
  syncIntervalMs: option.duration(
    "250ms",
    "Longest wait before the first attempts to reconnect, or to find another server. It doubles with each later attempt. The wait itself is random (full jitter).",
    {
      konnectivity: "--sync-interval",
      min: "1ms",
    },
  ),
  syncIntervalCapMs: option.duration(
    "30s",
    "Longest that the wait of --sync-interval becomes. While the agent looks for another server, 10s at most.",
    {
      konnectivity: "--sync-interval-cap",
      min: "1ms",
    },
  ),
});

const proxyRoute = section("The proxy route", {
  proxy: option.list(
    [],
    "Proxy to use: http://, https://, socks5:// or socks5h://[user:password@]host[:port]; several are tried in turn. Absent: HTTPS_PROXY or ALL_PROXY with NO_PROXY as Go reads them, else --pac, else no proxy.",
  ),
  proxyCredentialsFile: option.file(
    "",
    "File with user:password for the proxies whose URL has none, except those that an http:// script of --pac names; read again for each connection.",
  ),
  proxyCa: option.file(
    "",
    "CA certificates (PEM) for https:// proxies, and for the https:// server of --pac, besides those that Node brings.",
  ),
  proxyCert: option.file("", "Client certificate (PEM) for https:// proxies."),
  proxyKey: option.file("", "Private key (PEM) of --proxy-cert."),
  pac: option.string(
    "",
    "File or URL of a proxy auto-configuration script, used if neither --proxy nor the environment names a proxy. Proxies of an http:// script get no password and no Kerberos ticket: use https://.",
  ),
});

const targets = section("Targets", {
  allowTarget: option.list(
    [],
    "Targets that may be dialled, as CIDR, address or host pattern, with :port or :from-to; no others may. Empty: all, except loopback, link-local and cloud metadata addresses. The agent's own listeners are always refused.",
  ),
  allowLoopback: option.boolean(
    false,
    "Targets on this machine's loopback (127.0.0.0/8, ::1, 0.0.0.0, ::) may be dialled, although no --allow-target names them.",
  ),
  denyTarget: option.list([], "Targets that may not be dialled, in the same forms. It wins over --allow-target."),
  dialTimeoutMs: option.duration(
    "4s",
    "How long resolving and dialling a target may take together. The server may ask for less.",
    { min: "1ms" },
  ),
  drainTimeoutMs: option.duration("30s", "After SIGTERM, how long open connections may continue."),
});

const controlPlane = section("From this node to its control plane", {
  bindAddress: option.address(
    "",
    "IP address that only this node can reach, at which its programs reach the control plane by the ports of --target (docs/node-to-control-plane.md). Empty: off.",
  ),
  target: option.list(
    [],
    "PORT:HOST:PORT: connections to the first port of --bind-address go through the tunnel to host and port at the server. The server resolves the name and has to allow it (--allowed-destination, or allowedDestinations of the cluster).",
    { item: (text) => formatDestinationPort(parseDestinationPort(text)) },
  ),
  bindAllowSource: option.list(
    [],
    "Networks, such as the network of this node's pods, from which connections to --bind-address are accepted, besides this node's own addresses. All others are reset.",
    { item: cidr },
  ),
  interface: option.oneOf(
    ["none", "lo", "dummy"],
    "none",
    "Interface to which the agent adds --bind-address, with scope host: lo, or a dummy interface of its own. none: the address exists. The agent adds a removed address again, and removes it at its end; it needs NET_ADMIN and iproute2.",
  ),
  bindReachableAddress: option.boolean(
    false,
    "Allows a --bind-address that other hosts can reach: all addresses, or one in a network of this node.",
  ),
});

const operations = section("Health and administration", {
  healthServerHost: option.address("", "Address of the health port. Empty: all interfaces.", {
    konnectivity: "--health-server-host",
  }),
  healthServerPort: option.port(8093, "Port of /healthz, /livez, /readyz and /metrics. 0: off.", {
    konnectivity: "--health-server-port",
  }),
  readiness: option.oneOf(
    ["any", "quorum", "all"],
    "any",
    "Number of connected servers that makes the agent ready: one, more than half, or all. With any, agents stay ready while servers are updated one after the other, as Konnectivity's do. quorum and all also stop a rollout of agents that do not reach most or all of their servers. A tunnel that has lost its connection counts while it may still be resumed (--link-grace of the server).",
  ),
  adminBindAddress,
  adminAllowedHosts,
  adminServerPort: option.port(8094, "Port of /status, and of all that the health port answers. 0: off.", {
    konnectivity: "--admin-server-port",
  }),
});

/** Lower than the server's: each stream takes some kilobytes here, whatever comes over it. */
const ownStreams = section("Streams and memory", {
  maxStreams: option.integer(16_384, "Streams that one tunnel may carry at once. More are refused.", {
    min: 1,
    max: 1_000_000,
  }),
});

const rows = {
  ...server,
  ...proxyRoute,
  ...targets,
  ...controlPlane,
  ...streamRows,
  ...ownStreams,
  ...tlsRows,
  ...operations,
  ...logRows,
  ...tracingRows,
};

export const agentOptions = defineService({
  command: "agent",
  summary: "Dials the server, and connects to targets in its own network for the server's callers.",
  envPrefix: "CULVERT_AGENT",
  example: [
    "culvert agent --server wss://culvert.example.com:8091 --ca-cert cluster-ca.crt \\",
    "  --agent-cert agent.crt --agent-key agent.key",
  ],
  options: rows,
  firstDay: [
    ...["server", "caCert", "agentCert", "agentKey", "serviceAccountTokenPath", "agentId", "cluster", "outerCa"],
    ...["agentIdentifiers", "proxy", "proxyCredentialsFile", "allowTarget", "denyTarget", "allowLoopback"],
    ...["drainTimeoutMs", "memoryLimit", "healthServerPort", "adminServerPort", "logLevel", "logFormat"],
  ],
  foreign: AGENT_ONLY,
  resolve,
});

export type AgentOptions = OptionsOf<typeof agentOptions>;

function resolve(draft: Draft<typeof rows>): void {
  const { agentCert, agentKey, serviceAccountTokenPath } = draft.values;
  resolveWithoutCredential(draft);
  if (agentCert === "" && agentKey === "" && serviceAccountTokenPath === "") {
    draft.problem(
      "The server must know its agents: give --agent-cert and --agent-key, or --service-account-token-path.",
    );
  }
}

/** All but that there is a credential: the doctor looks at the way to the server without one, too. */
export function resolveWithoutCredential(draft: Draft<typeof rows>): void {
  const { values } = draft;
  checkServers(draft);
  attempt(draft, () => parseIdentifiers(values.agentIdentifiers), "--agent-identifiers: ");
  for (const rule of values.allowTarget) attempt(draft, () => parseRule(rule, "--allow-target"));
  for (const rule of values.denyTarget) attempt(draft, () => parseRule(rule, "--deny-target"));
  checkPair(draft, ["--agent-cert", values.agentCert], ["--agent-key", values.agentKey]);
  if (values.outerCa !== "" && values.innerTls === "never") {
    draft.warn("--outer-ca has no effect with --inner-tls=never: the middlebox that opens TLS would read everything.");
  }
  checkPair(draft, ["--proxy-cert", values.proxyCert], ["--proxy-key", values.proxyKey]);
  for (const [index, proxy] of values.proxy.entries()) {
    const name = values.proxy.length === 1 ? "--proxy " : `--proxy (number ${index + 1}) `;
    attempt(draft, () => parseProxyUrl(proxy), name);
  }
  if (!/^(all|[1-9]\d?)$/.test(values.uplinks)) draft.problem("--uplinks needs a number from 1 to 99, or all.");
  if (values.syncIntervalMs > values.syncIntervalCapMs) {
    draft.problem("--sync-interval must not be longer than --sync-interval-cap.");
  }
  checkControlPlane(draft);
  checkPorts(draft, [
    ["--health-server-port", values.healthServerPort, values.healthServerHost],
    ["--admin-server-port", values.adminServerPort, values.adminBindAddress],
  ]);
  if (values.agentId === "") values.agentId = generatedId();
}

function checkControlPlane(draft: Draft<typeof rows>): void {
  const { bindAddress, target } = draft.values;
  if (bindAddress !== "" && isIP(bindAddress) === 0) draft.problem("--bind-address needs an IP address.");
  if ((bindAddress === "") !== (target.length === 0)) {
    draft.problem("--bind-address and --target belong together: give both, or neither.");
  }
  const ports = target.map((text) => parseDestinationPort(text).port);
  const twice = ports.find((port, index) => ports.indexOf(port) !== index);
  if (twice !== undefined) draft.problem(`--target has port ${twice} twice.`);
}

function cidr(text: string): string {
  parseCidr(text);
  return text;
}

function checkServers(draft: Draft<typeof rows>): void {
  const { values } = draft;
  const { server: urls } = values;
  if (urls.length === 0 && values.proxyServerHost === "") {
    draft.problem("Which server? Give --server wss://host[:port], or --proxy-server-host and --proxy-server-port.");
  }
  if (urls.length > 0) {
    if (values.proxyServerHost !== "")
      draft.problem("--server and --proxy-server-host cannot be given together; name every server with --server.");
    else if (draft.given("proxyServerPort") && values.proxyServerPort !== 0)
      draft.problem("--proxy-server-port has no effect with --server; put the port in the URL.");
    values.proxyServerPort = 0; // so that what --print-config prints can be read again
    checkUrls(draft);
  } else if (values.proxyServerPort === 0) {
    draft.problem("--proxy-server-port must not be 0.");
  }
  if (values.serverAddress !== "") attempt(draft, () => parseHostPort(values.serverAddress), "--server-address ");
  if (values.serverAddress !== "" && urls.length > 1)
    draft.problem("--server-address is dialled in place of one server; with several, each is dialled by its name.");
}

function checkUrls(draft: Draft<typeof rows>): void {
  const { server: urls } = draft.values;
  // By number: the text may hold a password.
  const name = (index: number): string => (urls.length === 1 ? "--server " : `--server (number ${index + 1}) `);
  const servers = urls.map((url, index) => attempt(draft, () => parseServerUrl(url), name(index)));
  const twice = repeatedServer(servers.filter((server) => server !== undefined));
  if (twice !== undefined) draft.problem(`--server names ${twice} twice; an agent has one tunnel to each server.`);
}

/** The agent reads these values again when it starts; here a fault is reported together with all others. */
function attempt<T>(draft: Draft<typeof rows>, read: () => T, prefix = ""): T | undefined {
  try {
    return read();
  } catch (error) {
    draft.problem(`${prefix}${(error as Error).message}.`);
    return undefined;
  }
}
