import { parseTarget } from "../shared/address/target.ts";
import { logRows } from "../shared/config/common-options.ts";
import { type Draft, defineOptions, type OptionsOf, option, section } from "../shared/config/options.ts";
import { type ProxyServer, parseProxyUrl } from "../shared/dial/proxy-route.ts";

// The options of both sidecars. Names and defaults of HyperShift's sidecars work: they are in the column of
// Konnectivity.

const upstream = section("Servers", {
  server: option.list(
    [],
    "Callers' ports of culvert servers, host:port. If a server is away or has no agent, the next one is asked. Empty: --konnectivity-hostname and --konnectivity-port.",
    { item: serverAddress },
  ),
  konnectivityHostname: option.address("konnectivity-server-local", "Host of the one server, in place of --server."),
  konnectivityPort: option.port(8090, "Port of the one server, with --konnectivity-hostname."),
  caCert: option.file(
    "/etc/konnectivity/proxy-ca/ca.crt",
    "CA certificates (PEM) that the server's certificate must come from.",
    { konnectivity: "--ca-cert-path" },
  ),
  cert: option.file("/etc/konnectivity/proxy-client/tls.crt", "Client certificate (PEM).", {
    konnectivity: "--tls-cert-path",
  }),
  key: option.file("/etc/konnectivity/proxy-client/tls.key", "Private key (PEM) of --cert.", {
    konnectivity: "--tls-key-path",
  }),
});

const listening = section("Clients", {
  port: option.port(8090, "TCP port for clients. 0: off.", { konnectivity: "--serving-port" }),
  bindAddress: option.address("127.0.0.1", "Address of the port. Empty: all interfaces."),
  udsName: option.string("", "Path of a unix socket for clients. Its file is replaced."),
});

const bounds = section("Deadlines and bounds", {
  handshakeTimeoutMs: option.duration("10s", "From the accepted connection to the end of its request.", { min: "1ms" }),
  connectTimeoutMs: option.duration("9s", "From the request of a client to its open tunnel.", { min: "1ms" }),
  maxConnections: option.integer(10_000, "Connections of clients at once. More are closed.", {
    min: 1,
    max: 1_000_000,
  }),
  stallTimeoutMs: option.duration(
    "15m",
    "A connection is ended if its peer reads no byte for this time while data waits, or if no data passes this long after one side has ended. Idle connections are not ended.",
    { min: "1s" },
  ),
  drainTimeoutMs: option.duration("30s", "After SIGTERM, how long open connections may continue."),
});

/** Domains that HyperShift's sidecars treat as APIs of clouds. */
const CLOUD_APIS = [".amazonaws.com", ".amazonaws.com.cn", ".microsoftonline.com", ".azure.com", ".azure.cn"];

const resolving = section("Names", {
  clusterDns: option.string(
    "",
    "Name server of the cluster, host:port, which is asked over TCP through the tunnel. Empty: the agent resolves names, or the Service openshift-dns/dns-default does (--resolve-from-guest-cluster-dns).",
  ),
  kubeconfig: option.file(
    "",
    "Kubeconfig of the hosted cluster. Names such as name.namespace.svc become the ClusterIP of their Service.",
    { environment: "KUBECONFIG" },
  ),
  resolveFromGuestClusterDns: option.boolean(false, "The name server of the hosted cluster resolves other names."),
  resolveFromManagementClusterDns: option.boolean(
    false,
    "If the cluster's name server has failed, this machine's name server is asked. It also sets --direct-fallback.",
  ),
  disableResolver: option.boolean(false, "The agent resolves all names; other options about names have no effect."),
  preferIpv4: option.boolean(false, "Only the IPv4 addresses of a name are dialled, if it has any."),
});

const direct = section("Without the tunnel", {
  connectDirectlyToCloudApis: option.boolean(
    false,
    "Names of --direct-suffixes are dialled from here, through HTTPS_PROXY and NO_PROXY of the environment.",
  ),
  directSuffixes: option.list(CLOUD_APIS, "Suffixes of names for --connect-directly-to-cloud-apis.", {
    item: (text) => text.toLowerCase(),
  }),
  directFallback: option.boolean(false, "Dial targets from here while no server can be reached, or none has an agent."),
});

const common = { ...upstream, ...listening, ...resolving, ...direct, ...bounds };

/** The health ports of the two differ, because both may run in one pod. */
function operations(healthPort: number) {
  return section("Health", {
    healthPort: option.port(healthPort, "Port of /healthz, /livez, /readyz and /metrics. 0: off."),
    healthBindAddress: option.address("", "Address of the health port. Empty: all interfaces."),
  });
}

const socks5Rows = {
  ...common,
  loginFile: option.file(
    "",
    "File with user:password, which clients must send (RFC 1929). Read again when it changes. Empty: clients need no password.",
  ),
  ...operations(8099),
  ...logRows,
};

export const socks5ProxyOptions = defineOptions({
  command: "socks5-proxy",
  summary:
    "A SOCKS5 proxy on loopback, for a container beside it: connections go through the tunnels of culvert servers.",
  envPrefix: "CULVERT_SOCKS5_PROXY",
  example: ["culvert socks5-proxy --server culvert:8090 --ca-cert ca.crt --cert tls.crt --key tls.key --port 1080"],
  options: socks5Rows,
  foreign: {},
  resolve: (draft) => resolveCommon(draft as unknown as Draft<typeof common>),
});

const httpRows = {
  ...common,
  ...section("Proxies of the hosted cluster", {
    httpProxy: option.string(
      "",
      "Proxy of the hosted cluster for http:// URLs, which is reached through the tunnel: http://[user:password@]host[:port], or https://.",
    ),
    httpsProxy: option.string("", "The same for CONNECT."),
    noProxy: option.string(
      "",
      "Targets that these proxies are not asked for, as in NO_PROXY: names, addresses, CIDRs, *.",
    ),
    proxyCa: option.file(
      "",
      "CA certificates (PEM) for https:// proxies, besides Node's and those of /etc/pki/tls/certs.",
    ),
  }),
  ...operations(8100),
  ...logRows,
};

export const httpProxyOptions = defineOptions({
  command: "http-proxy",
  summary:
    "An HTTP proxy on loopback, for CONNECT and http:// URLs: connections go through the tunnels of culvert servers.",
  envPrefix: "CULVERT_HTTP_PROXY",
  example: ["culvert http-proxy --server culvert:8090 --ca-cert ca.crt --cert tls.crt --key tls.key --port 3128"],
  options: httpRows,
  foreign: {},
  resolve: (draft) => {
    resolveCommon(draft as unknown as Draft<typeof common>);
    // As HyperShift's: its proxy sends addresses to the hosted cluster's proxy, and the agent knows no Service.
    if (draft.values.kubeconfig !== "") draft.values.resolveFromGuestClusterDns = true;
    for (const [flag, url] of [
      ["--http-proxy", draft.values.httpProxy],
      ["--https-proxy", draft.values.httpsProxy],
    ] as const) {
      try {
        if (url !== "") parseHttpProxy(url);
      } catch (error) {
        draft.problem(`${flag} ${(error as Error).message}.`);
      }
    }
  },
});

/** The options that both sidecars have. */
export type SidecarOptions = OptionsOf<{ readonly options: typeof common & ReturnType<typeof operations> }>;
export type HttpProxyOptions = OptionsOf<typeof httpProxyOptions>;
export type Socks5ProxyOptions = OptionsOf<typeof socks5ProxyOptions>;

function resolveCommon({ values, given, problem }: Draft<typeof common>): void {
  if (values.port === 0 && values.udsName === "") problem("Where do clients connect? Give --port or --uds-name.");
  if (values.server.length > 0 && given("konnectivityHostname")) {
    problem("--server and --konnectivity-hostname both name servers: give one of them.");
  }
  if (values.resolveFromManagementClusterDns && !given("directFallback")) values.directFallback = true;
  if (values.clusterDns !== "" && isNoTarget(values.clusterDns)) problem("--cluster-dns needs host:port.");
  if (values.resolveFromGuestClusterDns && values.clusterDns === "" && values.kubeconfig === "") {
    problem("--resolve-from-guest-cluster-dns needs --kubeconfig (KUBECONFIG) or --cluster-dns.");
  }
  if (values.server.length > 0) return;
  values.server = [serverAddress(`${values.konnectivityHostname}:${values.konnectivityPort}`)];
}

function isNoTarget(text: string): boolean {
  try {
    parseTarget(text);
    return false;
  } catch {
    return true;
  }
}

function serverAddress(text: string): string {
  try {
    parseTarget(text);
  } catch {
    throw new Error(
      `needs host:port, a server's name and its --server-port, such as culvert-server:8090, and not "${text}"`,
    );
  }
  return text;
}

/** Throws an Error whose message continues the name of an option. */
export function parseHttpProxy(text: string): ProxyServer {
  const proxy = parseProxyUrl(text);
  if (proxy.scheme === "http" || proxy.scheme === "https") return proxy;
  throw new Error("must begin with http:// or https://");
}
