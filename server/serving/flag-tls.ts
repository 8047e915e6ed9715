import { WatchedCrl } from "../../shared/net/crl-file.ts";
import { WatchedTls } from "../../shared/net/tls-files.ts";
import type { ServerTls, TlsFiles } from "../../shared/net/tls-material.ts";
import type { Logger } from "../../shared/process/logger.ts";
import { ConfigError } from "../../shared/process/options.ts";
import type { FlagAuthorities } from "../clusters/claimed-certificates.ts";
import type { ServerOptions } from "../options.ts";
import type { Certificate } from "../status/status.ts";
import { ValidityLog } from "./validity-log.ts";

type FlagTlsOptions = Pick<
  ServerOptions,
  "clusterCert" | "clusterKey" | "clusterCaCert" | "serverCert" | "serverKey" | "serverCaCert" | "clientCrlFile"
>;

const FLAGS = { agents: "--cluster-cert", callers: "--server-cert" } as const;

export interface FlagTlsDeps {
  readonly log: Logger;
  /** What agents are shown or judged by has changed. */
  onAgentsRenewed(caChanged: boolean): void;
  /** What callers are judged by has changed. */
  onCallersCaChanged(): void;
  /** Other certificates may be revoked. */
  onCrlChanged(): void;
}

/** Certificates and CAs of the flags: of the one cluster, or of every side of a cluster that brings none. */
export class FlagTls {
  readonly agents: WatchedTls | undefined;
  readonly callers: WatchedTls | undefined;
  readonly crl: WatchedCrl | undefined;
  readonly #validity: { readonly agents: ValidityLog; readonly callers: ValidityLog };
  #authorities: FlagAuthorities = {};

  /** Throws a `ConfigError`. */
  constructor(options: FlagTlsOptions, deps: FlagTlsDeps) {
    const { clusterCert, clusterKey, clusterCaCert, serverCert, serverKey, serverCaCert } = options;
    const { log } = deps;
    const onAgentsRenewed = ({ ca }: ServerTls, before: ServerTls): void => {
      this.#validity.agents.look();
      deps.onAgentsRenewed(ca !== before.ca);
    };
    const onCallersRenewed = ({ ca }: ServerTls, before: ServerTls): void => {
      this.#validity.callers.look();
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
    this.#validity = {
      agents: this.#validityOf("agents", clusterCert, log),
      callers: this.#validityOf("callers", serverCert, log),
    };
  }

  #validityOf(clients: "agents" | "callers", file: string, log: Logger): ValidityLog {
    const by = FLAGS[clients];
    return new ValidityLog(log, () => {
      const certificate = this[clients]?.material;
      return certificate && { certificate, by, clients, fields: { file } };
    });
  }

  /** Another object only when one of the CAs is another. */
  get authorities(): FlagAuthorities {
    const agents = this.agents?.material.ca;
    const callers = this.callers?.material.ca;
    const { agents: agentsBefore, callers: callersBefore } = this.#authorities;
    if (agents !== agentsBefore || callers !== callersBefore) this.#authorities = { agents, callers };
    return this.#authorities;
  }

  /** For readiness. */
  certificates(): Certificate[] {
    return (["callers", "agents"] as const).flatMap((name) => {
      const side = this[name];
      if (side === undefined) return [];
      const { notBefore, notAfter, lacksServerAuth } = side.material;
      return [{ name, notBefore, notAfter, lacksServerAuth, problem: side.problem }];
    });
  }

  close(): void {
    this.agents?.close();
    this.callers?.close();
    this.crl?.close();
    this.#validity.agents.close();
    this.#validity.callers.close();
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
