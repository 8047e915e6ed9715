import type { Site } from "../../harness/binaries.ts";
import { callerTls } from "../../harness/pki-files.ts";
import type { ContenderName, Ports } from "../contenders.ts";
import type { BenchTarget, DialSpec } from "../dial-spec.ts";
import type { Command } from "./program.ts";

/** The two ways of kube-apiserver to a proxy. */
export const WAYS = ["unix socket", "TCP + mTLS"] as const;
export type Way = (typeof WAYS)[number];

/** Something that an operator runs as two processes, a server and an agent. */
export interface Product {
  readonly name: ContenderName;
  /** Whether callers say CONNECT and a target. Others forward a port for each target, over TCP alone. */
  readonly takesConnect: boolean;
  /** The same product for callers over HTTP/2, where it serves them. */
  readonly overHttp2?: Product;
  /** The version that its program reports; for culvert the run has the commit. */
  readonly version?: string;
  /** How it is run for callers of this way: with the certificates, ports and folder of the site. */
  plan(site: Site, ports: Ports, way: Way): Promise<Plan>;
}

export interface Plan {
  readonly server: Command;
  readonly agent: Command;
  /** Variables that both get beside those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** All that the server listens on before an agent is connected. */
  readonly listeners: readonly DialSpec[];
  dial(target: BenchTarget): DialSpec;
}

/** The callers' listener of the site's server, without a target. */
export function listenerOf(site: Site, way: Way): DialSpec {
  if (way === "unix socket") return { path: site.uds };
  const { ca, cert = "", key = "" } = callerTls(site.dir.path);
  return { port: site.callerPort, tls: { ca, cert, key } };
}
