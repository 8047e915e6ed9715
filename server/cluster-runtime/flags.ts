import { resolve } from "node:path";
import { ConfigError } from "../../shared/config/options.ts";
import { ConditionLog } from "../../shared/runtime/condition-log.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { type Expiring, expiryConditions } from "../../shared/tls/expiry.ts";
import { type IdentityPattern, parsePattern } from "../../shared/tls/identity.ts";
import { WatchedCrl } from "../../shared/tls/revocation-list.ts";
import { type ServerTls, type TlsFiles, type Validity, WatchedTls } from "../../shared/tls/tls-material.ts";
import { TargetRules } from "../clusters/access-rules.ts";
import type { FlagAuthorities } from "../clusters/certificate-reservations.ts";
import { type Cluster, SIDES, type SideName } from "../clusters/cluster.ts";
import type { TokenTrust } from "../clusters/document.ts";
import { DEFAULT_CLUSTER, type ServerOptions } from "../options/options.ts";
import type { ClusterSource } from "./clusters.ts";
import { SideExpiry } from "./expiring.ts";

/** Konnectivity's four flags for tokens of agents. */
type TokenReviewFlags = Pick<
  ServerOptions,
  "authenticationAudience" | "agentNamespace" | "agentServiceAccount" | "kubeconfig"
>;

type FlagClusterOptions = TokenReviewFlags & Pick<ServerOptions, "agentIdentities" | "callerIdentities" | "udsName">;

/** The one cluster of a server without `--clusters`, as its flags describe it. */
export function flagCluster(options: FlagClusterOptions): ClusterSource {
  const cluster: Cluster = {
    name: DEFAULT_CLUSTER,
    file: "the flags",
    agents: {
      sni: [],
      identities: patterns("--agent-identities", options.agentIdentities),
      ...(options.authenticationAudience !== "" && { token: tokenReview(options) }),
    },
    callers: {
      sni: [],
      identities: patterns("--caller-identities", options.callerIdentities),
      ...(options.udsName === "" ? {} : { uds: options.udsName }),
    },
    targets: new TargetRules([], []),
    limits: {},
    suspended: false,
  };
  const names = { find: () => cluster };
  return {
    clusters: new Map([[cluster.name, cluster]]),
    agentNames: names,
    callerNames: names,
    listen: (listener) => listener.onAdded(cluster),
  };
}

function tokenReview(flags: TokenReviewFlags): TokenTrust {
  const { authenticationAudience: audience, agentNamespace, agentServiceAccount, kubeconfig } = flags;
  return {
    ...{ kind: "tokenReview", audience, agentNamespace, agentServiceAccount },
    ...(kubeconfig !== "" && { kubeconfig: resolve(kubeconfig) }),
  };
}

function patterns(option: string, texts: readonly string[]): IdentityPattern[] {
  try {
    return texts.map(parsePattern);
  } catch (error) {
    throw new ConfigError([`${option}: ${(error as Error).message}.`], { cause: error });
  }
}

// ── certificates ─────────────────────────────────────────────────────────────────────────────────────────────────────

type FlagTlsOptions = Pick<
  ServerOptions,
  "clusterCert" | "clusterKey" | "clusterCaCert" | "serverCert" | "serverKey" | "serverCaCert" | "clientCrlFile"
>;

/** The flags for the certificate, its key and the CA of a side whose document leaves them out. */
export const TLS_FLAGS = {
  agents: { cert: "--cluster-cert", key: "--cluster-key", ca: "--cluster-ca-cert" },
  callers: { cert: "--server-cert", key: "--server-key", ca: "--server-ca-cert" },
} as const;

export interface FlagTlsDeps {
  readonly log: Logger;
  /** The certificate shown to agents, or the CA that verifies them, has changed. */
  onAgentsRenewed(caChanged: boolean): void;
  onCallersCaChanged(): void;
  /** The set of revoked certificates may have changed. */
  onCrlChanged(): void;
}

/** A certificate in use, for readiness. */
export interface CertificateState extends Validity {
  /** Its side, `agents` or `callers`. */
  readonly name: string;
  /** Why newer files did not replace it. */
  readonly problem: string | undefined;
}

/** The certificates and CAs of the flags, which serve every side of a cluster that brings none of its own. */
export class FlagTls {
  readonly agents: WatchedTls | undefined;
  readonly callers: WatchedTls | undefined;
  readonly crl: WatchedCrl | undefined;
  readonly #expiry: readonly SideExpiry[];
  readonly #expiryLog: ConditionLog;
  #authorities: FlagAuthorities = {};

  /** Throws a `ConfigError`. */
  constructor(options: FlagTlsOptions, deps: FlagTlsDeps) {
    const { clusterCert, clusterKey, clusterCaCert, serverCert, serverKey, serverCaCert } = options;
    const { log } = deps;
    const onAgentsRenewed = ({ ca }: ServerTls, before: ServerTls): void => {
      this.#expiryLog.check();
      deps.onAgentsRenewed(ca !== before.ca);
    };
    const onCallersRenewed = ({ ca }: ServerTls, before: ServerTls): void => {
      this.#expiryLog.check();
      if (ca !== before.ca) deps.onCallersCaChanged();
    };
    const ofAgents = { certFile: clusterCert, keyFile: clusterKey, caFile: clusterCaCert };
    const ofCallers = { certFile: serverCert, keyFile: serverKey, caFile: serverCaCert };
    const { clientCrlFile } = options;
    const onCrl = (): void => deps.onCrlChanged();
    try {
      this.agents = watched("The listener for agents", ofAgents.certFile, () => {
        return new WatchedTls(ofAgents, { log, onRenewed: onAgentsRenewed });
      });
      this.callers = watched("The listener for callers", ofCallers.certFile, () => {
        return new WatchedTls(ofCallers, { log, onRenewed: onCallersRenewed });
      });
      this.crl = watched("--client-crl-file", clientCrlFile, () => {
        return new WatchedCrl(clientCrlFile, { log, onRenewed: onCrl });
      });
    } catch (error) {
      this.agents?.close();
      this.callers?.close();
      throw error;
    }
    this.#expiry = [this.#expiryOf("agents", ofAgents), this.#expiryOf("callers", ofCallers)];
    this.#expiryLog = new ConditionLog(log, () => expiryConditions(this.expiring(), new Date()));
    this.#expiryLog.check();
  }

  #expiryOf(side: SideName, { certFile, caFile }: TlsFiles): SideExpiry {
    const files = { certificateFields: { file: certFile }, caFields: { file: caFile } };
    return new SideExpiry(side, () => {
      const certificate = this[side]?.content;
      const { cert, ca } = TLS_FLAGS[side];
      return { certificate, ca: certificate?.ca, by: { certificate: cert, ca }, cluster: "", ...files };
    });
  }

  /** The certificates and CAs that expire. */
  *expiring(): Generator<Expiring> {
    for (const side of this.#expiry) yield* side;
  }

  /** The same object as long as no CA changes. */
  get authorities(): FlagAuthorities {
    const agents = this.agents?.content.ca;
    const callers = this.callers?.content.ca;
    const { agents: agentsBefore, callers: callersBefore } = this.#authorities;
    if (agents !== agentsBefore || callers !== callersBefore) this.#authorities = { agents, callers };
    return this.#authorities;
  }

  certificates(): CertificateState[] {
    return [...SIDES].reverse().flatMap((name) => {
      const side = this[name];
      if (side === undefined) return [];
      const { notBefore, notAfter, lacksServerAuth } = side.content;
      return [{ name, notBefore, notAfter, lacksServerAuth, problem: side.problem }];
    });
  }

  close(): void {
    this.agents?.close();
    this.callers?.close();
    this.crl?.close();
    this.#expiryLog.close();
  }
}

/** `undefined` if the flag names no file. */
function watched<T>(what: string, path: string, watch: () => T): T | undefined {
  if (path === "") return undefined;
  try {
    return watch();
  } catch (error) {
    throw new ConfigError([`${what}: ${(error as Error).message}.`], { cause: error });
  }
}
