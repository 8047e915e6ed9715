/** How the load generator reaches a target: over what listener, and with a CONNECT or (raw relays, direct) without. */
export interface DialSpec {
  readonly path?: string;
  readonly port?: number;
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string };
  /** The authority of the CONNECT; none: the connection is the stream already. */
  readonly connect?: string;
}

/** Directions as in the glossary: down is target → caller. */
export type Flow = "down" | "up";

/** Targets behind the tunnel. `megabyte` sends no more than that, `stuck` accepts and never reads. */
export const BENCH_TARGETS = ["source", "megabyte", "sink", "echo", "stuck"] as const;
export type BenchTarget = (typeof BENCH_TARGETS)[number];
