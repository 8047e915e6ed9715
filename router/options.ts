import {
  adminAllowedHosts,
  adminBindAddress,
  checkPorts,
  healthShowsClusters,
  logRows,
} from "../shared/config/common-options.ts";
import { type Draft, defineOptions, type OptionsOf, option, section } from "../shared/config/options.ts";

const routing = section("Routing", {
  routes: option.string(
    "",
    "File, or directory of *.yaml and *.yml files, with the routes: YAML documents {sni: [names], to: [host:port], sendProxy: v2|off}. Read again when it changes; if a new version has a fault, the old one stays in use.",
  ),
  port: option.port(
    8443,
    "TCP port for TLS connections of agents and callers, which are passed on by the name in their ClientHello.",
  ),
  bindAddress: option.address("", "Address of the port. Empty: all interfaces."),
});

const bounds = section("Deadlines and bounds", {
  helloTimeoutMs: option.duration(
    "5s",
    "From the accepted connection to the end of its ClientHello, which may have 16KiB.",
    {
      min: "1ms",
    },
  ),
  maxHellos: option.integer(
    2_048,
    "Connections whose ClientHello is not complete. A further one drops the oldest of the network (IPv4 /32, IPv6 /64) that has most: real clients take milliseconds.",
    { min: 1, max: 1_000_000 },
  ),
  maxConnections: option.integer(
    20_000,
    "Connections at once. A further one drops a connection younger than 15s: the oldest of the network that has most. Each connection takes two file descriptors, and up to 128KiB when both its ends are slow.",
    { min: 1, max: 1_000_000 },
  ),
  dialTimeoutMs: option.duration("3s", "How long one backend is dialled before the next one is tried.", { min: "1ms" }),
  connectTimeoutMs: option.duration(
    "9s",
    "How long all backends of a route together are dialled. Agents give up after 10s.",
    {
      min: "1ms",
    },
  ),
  backendRetryMs: option.duration("5s", "How long a backend that could not be reached is tried after all others."),
  stallTimeoutMs: option.duration(
    "15m",
    "A connection is ended if its peer reads no byte for this time while data waits, or if no data passes this long after one side has ended. Idle connections are not ended.",
    { min: "1s" },
  ),
  listenBacklog: option.integer(4_096, "Connections that the kernel holds before they are accepted.", {
    min: 1,
    max: 65_535,
  }),
  drainTimeoutMs: option.duration(
    "30s",
    "After SIGTERM, how long open connections may continue. Tunnels do not end by themselves; agents resume tunnels that are cut.",
  ),
});

const operations = section("Health and administration", {
  healthPort: option.port(8098, "Port of /healthz, /livez, /readyz and /metrics. 0: off."),
  healthBindAddress: option.address("", "Address of the health port. Empty: all interfaces."),
  healthShowsClusters,
  adminPort: option.port(8097, "Port of /status, and of all that the health port answers. 0: off."),
  adminBindAddress,
  adminAllowedHosts,
});

const rows = { ...routing, ...bounds, ...operations, ...logRows };

export const routerOptions = defineOptions({
  command: "router",
  summary:
    "Passes TLS connections on to culvert servers by the server name that they ask for (SNI), without decrypting them.",
  envPrefix: "CULVERT_ROUTER",
  example: ["culvert router --routes /etc/culvert/routes --port 443"],
  options: rows,
  foreign: {},
  resolve,
});

export type RouterOptions = OptionsOf<typeof routerOptions>;

function resolve(draft: Draft<typeof rows>): void {
  const { values } = draft;
  if (values.routes === "") draft.problem("Where to? Give --routes, a file or a directory with routes.");
  if (values.port === 0) draft.problem("--port must not be 0: no client could connect. Give a port from 1 to 65535.");
  if (values.adminBindAddress === "") values.adminBindAddress = "127.0.0.1";
  checkPorts(draft, [
    ["--port", values.port, values.bindAddress],
    ["--health-port", values.healthPort, values.healthBindAddress],
    ["--admin-port", values.adminPort, values.adminBindAddress],
  ]);
}
