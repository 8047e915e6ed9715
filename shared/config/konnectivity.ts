import type { ForeignFlag } from "./options.ts";

/**
 * Flags of Konnectivity's binaries that have no row in our tables (design: "Configuration"). They are
 * never accepted without effect: what means nothing here is warned of, what is missing is refused.
 */

/** Accepted; the start names it in one warning line together with the others, each with its reason. */
export function ignored(help: string, boolean = false): ForeignFlag {
  return { boolean, help, judge: () => ({ ignored: help }) };
}

/** Refused with a sentence, except for the values that ask for nothing. */
export function refusedUnless(harmless: readonly string[], refused: string, boolean = false): ForeignFlag {
  return {
    boolean,
    help: refused,
    judge: (value) => (harmless.includes(value.trim()) ? "fine" : { refused }),
  };
}

/** Accepted like `ignored`, and without a word where the value switches the function off. */
function ignoredUnlessOff(help: string, off: readonly string[], boolean = false): ForeignFlag {
  return { boolean, help, judge: (value) => (off.includes(value.trim()) ? "fine" : { ignored: help }) };
}

/** How Go writes a boolean that is false. */
const GO_FALSE: readonly string[] = ["false", "f", "0", "F", "FALSE", "False"];

const ALL_SERVE_ALL = "every agent of a cluster serves all its targets";

const EACH_SERVER = "agents are given every server by --server, and keep a tunnel to each URL";

/** `--server-count`: culvert servers do not count each other. */
const SERVER_COUNT: ForeignFlag = {
  boolean: false,
  help: EACH_SERVER,
  judge: (value) => {
    if (!/^\d+$/.test(value.trim())) return { refused: "needs the number of servers, or is left out." };
    return Number(value) === 1 ? "fine" : { ignored: EACH_SERVER };
  },
};

const STRATEGIES: ReadonlySet<string> = new Set(["destHost", "default", "defaultRoute"]);

/** `--proxy-strategies`: what falls back to any agent routes as culvert does, while agents are of one kind. */
const PROXY_STRATEGIES: ForeignFlag = {
  boolean: false,
  help: ALL_SERVE_ALL,
  judge: (value) => {
    const names = value.split(",").map((name) => name.trim());
    const unknown = names.find((name) => name !== "" && !STRATEGIES.has(name));
    if (unknown !== undefined) return { refused: `there is no strategy ${JSON.stringify(unknown.slice(0, 40))}.` };
    const last = names.at(-1);
    if (last === "destHost") {
      return {
        refused:
          "destHost alone chooses agents by name or address, which is not built yet. For agents of several clusters use --clusters; else let the list end in default.",
      };
    }
    return names.length === 1 && last !== "defaultRoute" ? "fine" : { ignored: ALL_SERVE_ALL };
  },
};

/** `--agent-identifiers`, in the form of a URL's query. Whoever takes what nobody else is for is like every agent here. */
const AGENT_IDENTIFIERS: ForeignFlag = {
  boolean: false,
  help: ALL_SERVE_ALL,
  judge: (value) => {
    const pairs = [...new URLSearchParams(value.trim())];
    if (pairs.length === 0) return "fine";
    if (pairs.every(([name, is]) => name === "default-route" && is === "true")) return { ignored: ALL_SERVE_ALL };
    return {
      refused:
        "agents are not chosen by host or address yet, and every agent serves every target. Leave it out where this agent reaches them all; else see docs/konnectivity.md.",
    };
  },
};

const LEASES = "no leases are used: agents are given every server by --server";

const REVIEWS = "answers about tokens are kept for a minute";
const WINDOWS = "streams have windows: --max-window";
const KLOG = "klog's: use --log-level and --log-format";
const PPROF = "Go's profiler";

/** Flags of the server alone. */
export const SERVER_ONLY: Readonly<Record<string, ForeignFlag>> = {
  "proxy-strategies": PROXY_STRATEGIES,
  "server-count": SERVER_COUNT,
  "enable-lease-controller": ignoredUnlessOff(LEASES, GO_FALSE, true),
  "kubeconfig-qps": ignored(REVIEWS),
  "kubeconfig-burst": ignored(REVIEWS),
  "frontend-write-channel-size": ignored(WINDOWS),
};

/** Flags of the agent alone. */
export const AGENT_ONLY: Readonly<Record<string, ForeignFlag>> = {
  "agent-identifiers": AGENT_IDENTIFIERS,
  "alpn-proto": refusedUnless(
    [""],
    "the agent offers http/1.1 alone. A balancer in front can choose by the server's name (SNI) instead.",
  ),
  "count-server-leases": ignoredUnlessOff(LEASES, GO_FALSE, true),
  "server-count-source": ignored(LEASES),
  kubeconfig: ignoredUnlessOff(LEASES, [""]),
  "sync-forever": ignored("an agent never stops trying", true),
  "probe-interval": ignored("a lost tunnel is noticed by --keepalive"),
};

/** Flags that both of Konnectivity's binaries have and that mean nothing here; klog's own (k8s.io/klog/v2) among them. */
export const IGNORED_BY_BOTH: Readonly<Record<string, ForeignFlag>> = {
  "xfr-channel-size": ignored(WINDOWS),
  "warn-on-channel-limit": ignored(WINDOWS, true),
  "enable-profiling": ignored(PPROF, true),
  "enable-contention-profiling": ignored(PPROF, true),
  "kube-api-content-type": ignored("no Kubernetes API is called"),
  "lease-namespace": ignored(LEASES),
  "lease-label": ignored(LEASES),
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
