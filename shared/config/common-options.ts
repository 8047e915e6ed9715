import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { goBoolean } from "../basics/text.ts";
import { defaultMemoryLimit } from "../limits/memory-limit.ts";
import { addressesOverlap } from "./listen-address.ts";
import {
  type Draft,
  defineOptions,
  type ForeignFlag,
  type Option,
  type OptionTable,
  option,
  type Rows,
  section,
} from "./options.ts";
import { formatSize } from "./values.ts";

// Rows, checks and Konnectivity's flags that several option tables share. Both ends of a tunnel have the same bounds.

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;

export const logRows = section("Logs", {
  logLevel: option.oneOf(
    LOG_LEVELS,
    "info",
    "Lowest level that is logged. Each finished connection is one line at info. PUT /log-level on the admin port changes the level.",
  ),
  logFormat: option.oneOf(
    ["auto", "json", "pretty"],
    "auto",
    "json: JSON lines. pretty: lines for people. auto: pretty on a terminal, else json.",
  ),
});

/** Of server and agent. */
export const tracingRows = section("Traces", {
  otlpEndpoint: option.string(
    "",
    "URL of an OpenTelemetry collector, OTLP over HTTP with protobuf: http://127.0.0.1:4318. Empty: no traces.",
  ),
  traceSamplingRatePerMillion: option.integer(
    10_000,
    "Number of CONNECTs that begin a trace, of a million without a traceparent. A CONNECT with a traceparent is traced if its caller has sampled it.",
    { min: 0, max: 1_000_000 },
  ),
});

export const streamRows = section("Streams and memory", {
  maxStreams: option.integer(65_536, "Streams that one tunnel may carry at once. More are refused.", {
    min: 1,
    max: 1_000_000,
  }),
  maxWindow: option.size(
    "16MiB",
    "Largest window of one stream. It should be at least bandwidth times round trip time for a stream that must use all of the bandwidth.",
    { min: "16KiB", max: "1GiB" },
  ),
  sessionBudget: option.size(
    "64MiB",
    "Bytes that all streams of a tunnel may buffer together. Above it, windows do not grow, and connections whose readers have stopped are ended, first the connections that hold most and have not moved for longest.",
    { min: "1MiB", max: "16GiB" },
  ),
  memoryLimit: option.size(
    formatSize(defaultMemoryLimit()),
    "Bytes that all connections of the process may hold together: not read by slow readers, not acknowledged by the other end, or waiting in sockets. Above it, windows do not grow, and clusters that hold more than their share end connections whose readers have stopped. New connections are refused only if no reader has stopped. The process itself needs more: some 80MiB when idle, and bytes on their way.",
    { min: "1MiB", defaultText: "half of what the control group, or else the machine, has beyond 80MiB" },
  ),
  replayBuffer: option.size(
    "16MiB",
    "Bytes that a tunnel keeps until the other end has acknowledged them, to send them again over a new connection. It also limits the bytes that are on their way.",
    { min: "64KiB", max: "1GiB" },
  ),
  stallTimeoutMs: option.duration(
    "15m",
    "A connection is ended if its peer reads no byte for this time while data waits, or if no data passes this long after one side has ended. Idle connections are not ended.",
    { min: "1s" },
  ),
});

export const tlsRows = section("TLS", {
  tlsMinVersion: option.tlsVersion("Oldest TLS version that is used. VersionTLS12 and VersionTLS13 are understood.", {
    konnectivity: "--tls-min-version",
  }),
  cipherSuites: option.cipherSuites("Suites of TLS 1.2 by Go's or OpenSSL's names. Empty: Node's own list.", {
    konnectivity: "--cipher-suites",
    defaultText: "Node's own",
  }),
});

/** Under "Health and administration" of every command. */
export const adminBindAddress = option.address("127.0.0.1", "Address of the admin port. Empty: loopback.", {
  konnectivity: "--admin-bind-address",
});

export const adminAllowedHosts = option.list(
  [],
  "Names that a request to the admin port may have in Host, besides localhost and IP addresses. Other names are refused: a web page in an operator's browser may have sent the request (DNS rebinding).",
  { item: hostName },
);

/** Server and router have it, because their documents and routes name tenants. */
export const healthShowsClusters = option.boolean(
  false,
  "The health port shows names of clusters and routes, and paths of files, in /readyz?verbose and in labels of /metrics, as the admin port does. Probes and load balancers do not need them, and many can reach that port.",
);

function hostName(text: string): string {
  if (!/^[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?$/i.test(text))
    throw new Error(`needs names of hosts without a port, not "${text}"`);
  return text;
}

/** Server and agent have these under headings of their own. */
type RowsOfBoth = Rows &
  typeof tracingRows & {
    readonly keepaliveMs: Option<number>;
    readonly adminBindAddress: Option<string>;
  };

/** The table of a server or an agent: its own rows and flags, with the flags and checks of both. */
export function defineService<R extends RowsOfBoth>(table: OptionTable<R>): OptionTable<R> {
  return defineOptions({
    ...table,
    foreign: { ...table.foreign, ...IGNORED_BY_BOTH },
    resolve: (draft) => {
      resolveBoth(draft as unknown as Draft<RowsOfBoth>);
      table.resolve(draft);
    },
  });
}

function isHttpUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}

function resolveBoth({ values, warn, problem }: Draft<RowsOfBoth>): void {
  const { otlpEndpoint } = values;
  if (otlpEndpoint !== "" && !isHttpUrl(otlpEndpoint)) {
    problem("--otlp-endpoint needs a URL such as http://127.0.0.1:4318: OTLP over HTTP, not over gRPC.");
  }
  if (values.keepaliveMs > 5 * 60_000) {
    const minutes = Math.round((values.keepaliveMs * 2.5) / 60_000);
    warn(`--keepalive: a tunnel that is lost without a FIN or RST will be noticed only after ${minutes} minutes.`);
  }
  // Konnectivity's server reads an empty address as loopback. Every interface is 0.0.0.0 or ::.
  if (values.adminBindAddress === "") values.adminBindAddress = "127.0.0.1";
}

/** Checks that a certificate and its key are given together. */
export function checkPair(draft: Draft<Rows>, cert: [flag: string, value: string], key: [string, string]): void {
  if (cert[1] !== "" && key[1] === "") draft.problem(`${cert[0]} needs its private key: give ${key[0]} too.`);
  if (cert[1] === "" && key[1] !== "") draft.problem(`${key[0]} needs its certificate: give ${cert[0]} too.`);
}

/** Checks that no two listeners of the process have the same port, which would fail only at the second listen(). */
export function checkPorts(draft: Draft<Rows>, ports: readonly [flag: string, port: number, address: string][]): void {
  for (const [index, [flag, port, address]] of ports.entries()) {
    const other = ports.slice(0, index).find((before) => before[1] === port && addressesOverlap(before[2], address));
    if (port !== 0 && other !== undefined) draft.problem(`${other[0]} and ${flag} are both ${port}.`);
  }
}

/** The default of an id: readable in logs, and different for two processes on one host. */
export function generatedId(): string {
  return `${hostname()
    .slice(0, 64)
    .replace(/[^A-Za-z0-9._:-]/g, "-")}-${randomBytes(4).toString("hex")}`;
}

// ── Konnectivity's flags without a row ───────────────────────────────────────────────────────────────────────────────

// None is ignored in silence: a flag that has no meaning here causes a warning, a flag that asks for a missing feature
// is refused.

/** Accepted; one warning line at the start names all these flags with their reasons. */
export function ignored(help: string, boolean = false): ForeignFlag {
  return { boolean, help, effectOf: () => ({ ignored: help }) };
}

/** Refused with a sentence, except for values that ask for nothing. */
export function refusedUnless(harmless: readonly string[], refused: string): ForeignFlag {
  return {
    boolean: false,
    help: refused,
    effectOf: (value) => (harmless.includes(value.trim()) ? "harmless" : { refused }),
  };
}

/** Like `ignored`, but without a warning where the value switches the function off. */
function ignoredUnlessOff(help: string, isOff: (value: string) => boolean, boolean = false): ForeignFlag {
  return { boolean, help, effectOf: (value) => (isOff(value.trim()) ? "harmless" : { ignored: help }) };
}

const SERVERS_SAY = "servers say how many they are, and agents count no leases";
const REVIEWS = "answers about tokens are kept for a minute";
const WINDOWS = "streams have windows: --max-window";
const KLOG = "klog's: use --log-level and --log-format";
const PPROF = "Go's profiler";

/** Only the server has these flags. */
export const SERVER_ONLY: Readonly<Record<string, ForeignFlag>> = {
  "kubeconfig-qps": ignored(REVIEWS),
  "kubeconfig-burst": ignored(REVIEWS),
  "frontend-write-channel-size": ignored(WINDOWS),
};

/** Only the agent has these flags. */
export const AGENT_ONLY: Readonly<Record<string, ForeignFlag>> = {
  "alpn-proto": refusedUnless(
    [""],
    "the agent offers http/1.1 alone. A balancer in front can choose by the server's name (SNI) instead.",
  ),
  "count-server-leases": ignoredUnlessOff(SERVERS_SAY, (value) => goBoolean(value) === false, true),
  "server-count-source": ignored(SERVERS_SAY),
  kubeconfig: ignoredUnlessOff(SERVERS_SAY, (value) => value === ""),
  "lease-namespace": ignored(SERVERS_SAY),
  "lease-label": ignored(SERVERS_SAY),
  "lease-label-selector": ignored(SERVERS_SAY),
  "sync-forever": ignored("an agent never stops looking for servers", true),
  "probe-interval": ignored("a lost tunnel is noticed by --keepalive"),
};

/** Flags of both of Konnectivity's binaries that have no meaning here, among them klog's (k8s.io/klog/v2). */
const IGNORED_BY_BOTH: Readonly<Record<string, ForeignFlag>> = {
  "xfr-channel-size": ignored(WINDOWS),
  "warn-on-channel-limit": ignored(WINDOWS, true),
  "enable-profiling": ignored(PPROF, true),
  "enable-contention-profiling": ignored(PPROF, true),
  "kube-api-content-type": ignored("the Kubernetes API is asked for JSON"),
  v: ignored(KLOG),
  vmodule: ignored(KLOG),
  logtostderr: ignored(KLOG, true),
  alsologtostderr: ignored(KLOG, true),
  alsologtostderrthreshold: ignored(KLOG),
  stderrthreshold: ignored(KLOG),
  "legacy-stderr-threshold-behavior": ignored(KLOG, true),
  "log-dir": ignored(KLOG),
  "log-file": ignored(KLOG),
  "log-file-max-size": ignored(KLOG),
  "log-backtrace-at": ignored(KLOG),
  "log-flush-frequency": ignored(KLOG),
  "add-dir-header": ignored(KLOG, true),
  "skip-headers": ignored(KLOG, true),
  "skip-log-headers": ignored(KLOG, true),
  "one-output": ignored(KLOG, true),
};
