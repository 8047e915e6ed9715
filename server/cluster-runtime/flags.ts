import { ConfigError } from "../../shared/config/options.ts";
import { ConditionLog } from "../../shared/runtime/condition-log.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { WatchedCrl } from "../../shared/tls/crl-file.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import { expiryConditions } from "../../shared/tls/expiry.ts";
import { WatchedTls } from "../../shared/tls/tls-files.ts";
import type { ServerTls, TlsFiles, Validity } from "../../shared/tls/tls-material.ts";
import type { FlagAuthorities } from "../clusters/claimed-certificates.ts";
import type { ServerOptions } from "../options/options.ts";
import { SideExpiry } from "./expiring.ts";

type FlagTlsOptions = Pick<
  ServerOptions,
  "clusterCert" | "clusterKey" | "clusterCaCert" | "serverCert" | "serverKey" | "serverCaCert" | "clientCrlFile"
>;

const FLAGS = {
  agents: { certificate: "--cluster-cert", ca: "--cluster-ca-cert" },
  callers: { certificate: "--server-cert", ca: "--server-ca-cert" },
} as const;

/** A certificate in use: whose it is, when it is good, and why newer files are not in its place. */
export interface Certificate extends Validity {
  readonly name: string;
  readonly problem: string | undefined;
}

export interface FlagTlsDeps {
  readonly log: Logger;
  /** What agents are shown or verified by has changed. */
  onAgentsRenewed(caChanged: boolean): void;
  /** What callers are verified by has changed. */
  onCallersCaChanged(): void;
  /** Other certificates may be revoked. */
  onCrlChanged(): void;
}

/** Certificates and CAs of the flags: of the one cluster, or of every side of a cluster that brings none. */
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
    this.agents = watched("agents", ofAgents, () => new WatchedTls(ofAgents, { log, onRenewed: onAgentsRenewed }));
    try {
      this.callers = watched(
        "callers",
        ofCallers,
        () => new WatchedTls(ofCallers, { log, onRenewed: onCallersRenewed }),
      );
      this.crl = watchedCrl(options.clientCrlFile, () => deps.onCrlChanged(), log);
    } catch (error) {
      this.agents?.close();
      this.callers?.close();
      throw error;
    }
    this.#expiry = [this.#expiryOf("agents", ofAgents), this.#expiryOf("callers", ofCallers)];
    this.#expiryLog = new ConditionLog(log, () => expiryConditions(this.expiring(), new Date()));
    this.#expiryLog.check();
  }

  #expiryOf(clients: "agents" | "callers", { certFile, caFile }: TlsFiles): SideExpiry {
    const files = { certificateFields: { file: certFile }, caFields: { file: caFile } };
    return new SideExpiry(clients, () => {
      const certificate = this[clients]?.content;
      return { certificate, ca: certificate?.ca, by: FLAGS[clients], cluster: "", ...files };
    });
  }

  /** What of it has an end. */
  *expiring(): Generator<Expiring> {
    for (const side of this.#expiry) yield* side;
  }

  /** Another object only when one of the CAs is another. */
  get authorities(): FlagAuthorities {
    const agents = this.agents?.content.ca;
    const callers = this.callers?.content.ca;
    const { agents: agentsBefore, callers: callersBefore } = this.#authorities;
    if (agents !== agentsBefore || callers !== callersBefore) this.#authorities = { agents, callers };
    return this.#authorities;
  }

  /** For readiness. */
  certificates(): Certificate[] {
    return (["callers", "agents"] as const).flatMap((name) => {
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

function watchedCrl(path: string, onRenewed: () => void, log: Logger): WatchedCrl | undefined {
  if (path === "") return undefined;
  try {
    return new WatchedCrl(path, { log, onRenewed });
  } catch (error) {
    throw new ConfigError([`--client-crl-file: ${(error as Error).message}.`], { cause: error });
  }
}

function watched(name: string, { certFile }: TlsFiles, watch: () => WatchedTls): WatchedTls | undefined {
  if (certFile === "") return undefined;
  try {
    return watch();
  } catch (error) {
    throw new ConfigError([`The listener for ${name}: ${(error as Error).message}.`], { cause: error });
  }
}
