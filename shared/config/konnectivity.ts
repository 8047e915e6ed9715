import { goBoolean } from "../basics/text.ts";
import type { ForeignFlag } from "./options.ts";

/**
 * Flags of Konnectivity's binaries that have no row in our tables. None is ignored in silence: a flag that has no
 * meaning here causes a warning, a flag that asks for a missing feature is refused.
 */

/** Accepted; one warning line at the start names all these flags with their reasons. */
export function ignored(help: string, boolean = false): ForeignFlag {
  return { boolean, help, effectOf: () => ({ ignored: help }) };
}

/** Refused with a sentence, except for values that ask for nothing. */
export function refusedUnless(harmless: readonly string[], refused: string, boolean = false): ForeignFlag {
  return {
    boolean,
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
export const IGNORED_BY_BOTH: Readonly<Record<string, ForeignFlag>> = {
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
