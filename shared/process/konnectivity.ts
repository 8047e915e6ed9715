import type { ForeignFlag } from "./options.ts";

/**
 * Flags of Konnectivity's binaries that have no row in our tables (design: "Configuration"). They are
 * never accepted without effect: what means nothing here is warned of, what is missing is refused.
 */

/** Accepted; the start names it in one warning line together with the others. */
export function ignored(help: string, boolean = false): ForeignFlag {
  return { boolean, help, judge: () => "ignored" };
}

/** Refused with a sentence, except for the values that ask for nothing. */
export function refusedUnless(harmless: readonly string[], refused: string, boolean = false): ForeignFlag {
  return {
    boolean,
    help: refused,
    judge: (value) => (harmless.includes(value.trim()) ? "fine" : { refused }),
  };
}

/** For the flags of either binary that ask for leases. */
export const NO_LEASES = "counting servers by leases is not built yet.";

const KLOG = "a klog flag; use --log-level and --log-format";

/** Flags that both of Konnectivity's binaries have and that mean nothing here; klog's own (k8s.io/klog/v2) among them. */
export const IGNORED_BY_BOTH: Readonly<Record<string, ForeignFlag>> = {
  "xfr-channel-size": ignored("streams have windows here: --max-window"),
  "warn-on-channel-limit": ignored("there are no channels to fill", true),
  "enable-profiling": ignored("Go's pprof", true),
  "enable-contention-profiling": ignored("Go's pprof", true),
  "kube-api-content-type": ignored("no Kubernetes API is called"),
  "lease-namespace": ignored("no leases are used"),
  "lease-label": ignored("no leases are used"),
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
