import { ConfigError } from "../../shared/config/options.ts";
import { ConditionLog } from "../../shared/runtime/throttled-log.ts";
import { AuthorityEnds, type Expiring, expiryConditions } from "../../shared/tls/expiry.ts";
import { WatchedCrl } from "../../shared/tls/revocation-list.ts";
import {
  type ServerTls,
  TlsFileError,
  type TlsFiles,
  type Validity,
  WatchedTls,
} from "../../shared/tls/tls-material.ts";
import { SIDES, type SideName } from "../clusters/cluster.ts";
import type { FlagAuthorities } from "../clusters/reservations.ts";
import type { ServerContext } from "../tunnels/context.ts";

/** The flags for the certificate, its key and the CA of a side whose document leaves them out. */
export const TLS_FLAGS = {
  agents: { cert: "--cluster-cert", key: "--cluster-key", ca: "--cluster-ca-cert" },
  callers: { cert: "--server-cert", key: "--server-key", ca: "--server-ca-cert" },
} as const;

/** Names the keys that a side of a document lacks, and the flags that could replace them. */
export function missingSentence(
  side: SideName,
  lacks: { readonly certificate: boolean; readonly ca: boolean },
): string | undefined {
  const keys = [...(lacks.certificate ? (["cert", "key"] as const) : []), ...(lacks.ca ? (["ca"] as const) : [])];
  if (keys.length === 0) return undefined;
  const [verb, has] = keys.length === 1 ? ["is", "has one"] : ["are", "have them"];
  const missing = enumerated(keys.map((key) => `${side}.${key}`));
  return `${missing} ${verb} missing: neither the document nor ${enumerated(keys.map((key) => TLS_FLAGS[side][key]))} ${has}`;
}

function enumerated(words: readonly string[]): string {
  return words.length === 1 ? words.join() : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** Told of the changes of the flags' files. */
interface FlagTlsWatcher {
  /** The certificate shown to agents, or the CA that verifies them, has changed. */
  onAgentsRenewed(caChanged: boolean): void;
  onCallersCaChanged(): void;
  /** The set of revoked certificates may have changed. */
  onCrlChanged(): void;
}

/** A certificate in use, for readiness. */
export interface CertificateState extends Validity {
  /** The side that shows it, `agents` or `callers`. */
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

  /** Throws a `ConfigError`. */
  constructor({ options, log }: ServerContext, watcher: FlagTlsWatcher) {
    const { clusterCert, clusterKey, clusterCaCert, serverCert, serverKey, serverCaCert, clientCrlFile } = options;
    const onAgentsRenewed = ({ ca }: ServerTls, before: ServerTls): void => {
      this.#expiryLog.check();
      watcher.onAgentsRenewed(ca !== before.ca);
    };
    const onCallersRenewed = ({ ca }: ServerTls, before: ServerTls): void => {
      this.#expiryLog.check();
      if (ca !== before.ca) watcher.onCallersCaChanged();
    };
    const ofAgents = { certFile: clusterCert, keyFile: clusterKey, caFile: clusterCaCert };
    const ofCallers = { certFile: serverCert, keyFile: serverKey, caFile: serverCaCert };
    const problems: string[] = [];
    const watchAgents = () => new WatchedTls(ofAgents, { log, onRenewed: onAgentsRenewed });
    this.agents = watched(problems, (error) => flagOf("agents", error), clusterCert, watchAgents);
    const watchCallers = () => new WatchedTls(ofCallers, { log, onRenewed: onCallersRenewed });
    this.callers = watched(problems, (error) => flagOf("callers", error), serverCert, watchCallers);
    const watchCrl = () => new WatchedCrl(clientCrlFile, { log, onRenewed: () => watcher.onCrlChanged() });
    this.crl = watched(problems, () => "--client-crl-file", clientCrlFile, watchCrl);
    if (problems.length > 0) {
      for (const files of [this.agents, this.callers, this.crl]) files?.close();
      throw new ConfigError(problems);
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

  get authorities(): FlagAuthorities {
    return { agents: this.agents?.content.ca, callers: this.callers?.content.ca };
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

/** `undefined` if the flag names no file, or if what it names cannot be used, which is added to the problems. */
function watched<T>(problems: string[], flag: (error: unknown) => string, path: string, watch: () => T): T | undefined {
  if (path === "") return undefined;
  try {
    return watch();
  } catch (error) {
    problems.push(`${flag(error)}: ${(error as Error).message}.`);
    return undefined;
  }
}

const KEYS = { certFile: "cert", keyFile: "key", caFile: "ca" } as const;

/** The flag of the file that is at fault. */
function flagOf(side: SideName, error: unknown): string {
  return TLS_FLAGS[side][error instanceof TlsFileError ? KEYS[error.file] : "cert"];
}

// ── what expires ────────────────────────────────────────────────────────────────────────────────────────────────────

/** The certificate and CA of one side, and the flags or document keys that name them. */
interface SideInUse {
  readonly certificate: (Validity & { readonly cert: string }) | undefined;
  /** PEM; empty or `undefined` if there is none. */
  readonly ca: string | undefined;
  readonly by: { readonly certificate: string; readonly ca: string };
  readonly cluster: string;
  readonly certificateFields: Expiring["fields"];
  readonly caFields: Expiring["fields"];
}

/** The certificate and CAs of one side that expire. The CA bundle is parsed once for each content. */
export class SideExpiry {
  readonly #clients: SideName | "peers";
  readonly #inUse: () => SideInUse;
  readonly #authorities = new AuthorityEnds();

  constructor(clients: SideName | "peers", inUse: () => SideInUse) {
    this.#clients = clients;
    this.#inUse = inUse;
  }

  *[Symbol.iterator](): Generator<Expiring> {
    const { certificate, ca = "", by, cluster, certificateFields, caFields } = this.#inUse();
    const clients = this.#clients;
    if (certificate !== undefined) {
      const { notBefore, notAfter, lacksServerAuth, cert: content } = certificate;
      yield {
        role: `${clients}_cert`,
        cluster,
        thing: "certificate",
        by: by.certificate,
        fields: certificateFields,
        notBefore,
        notAfter,
        lacksServerAuth,
        content,
        consequence: `${clients} refuse this server`,
      };
    }
    const next = this.#authorities.next(ca, new Date());
    if (next !== undefined) {
      yield {
        role: `${clients}_ca`,
        cluster,
        thing: "CA",
        by: by.ca,
        fields: caFields,
        ...next,
        content: ca,
        consequence: `${clients} with its certificates are refused`,
      };
    }
  }
}
