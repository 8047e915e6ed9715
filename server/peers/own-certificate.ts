import { ConfigError } from "../../shared/config/options.ts";
import { ConditionLog, type LoggedCondition } from "../../shared/runtime/condition-log.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { Check } from "../../shared/runtime/readiness.ts";
import { type Expiring, expiryConditions } from "../../shared/tls/expiry.ts";
import type { RevocationList } from "../../shared/tls/revocation-list.ts";
import { type ServerTls, unfit, WatchedTls } from "../../shared/tls/tls-material.ts";
import { SideExpiry } from "../cluster-runtime/flag-certificates.ts";
import type { ServerOptions } from "../options/options.ts";
import { PeerTrust } from "./peer-trust.ts";

export interface OwnCertificateDeps {
  readonly options: Pick<ServerOptions, "peerCert" | "peerKey" | "peerCaCert" | "peerIdentities">;
  readonly log: Logger;
  /** The CRLs of `--client-crl-file`; another array whenever they change. */
  crls(): readonly RevocationList[];
  onRenewed(): void;
}

/**
 * The certificate that this server shows to others, and the CA that theirs come from. In a fleet all have the same
 * options, so what this server would refuse in another one's certificate, others refuse in its own: that is logged.
 */
export class OwnCertificate {
  readonly trust: PeerTrust;
  readonly #files: WatchedTls;
  readonly #expiry: SideExpiry;
  readonly #conditions: ConditionLog;

  /** Throws a `ConfigError`. */
  constructor({ options, log, crls, onRenewed }: OwnCertificateDeps) {
    const { peerCert: certFile, peerKey: keyFile, peerCaCert: caFile, peerIdentities } = options;
    try {
      this.#files = new WatchedTls(
        { certFile, keyFile, caFile },
        {
          log,
          onRenewed: () => {
            this.#conditions.check();
            onRenewed();
          },
        },
      );
    } catch (error) {
      throw new ConfigError([`The listener for peers: ${(error as Error).message}.`], { cause: error });
    }
    this.trust = new PeerTrust(peerIdentities, () => this.material, crls);
    this.#expiry = new SideExpiry("peers", () => ({
      ...{ certificate: this.material, ca: this.material.ca, cluster: "" },
      by: { certificate: "--peer-cert", ca: "--peer-ca-cert" },
      ...{ certificateFields: { file: certFile }, caFields: { file: caFile } },
    }));
    this.#conditions = new ConditionLog(log, () => this.#unusual({ file: certFile }));
    this.#conditions.check();
  }

  /** To be called when the CRLs have changed. */
  checkCrls(): void {
    this.#conditions.check();
  }

  get material(): ServerTls {
    return this.#files.content;
  }

  /** Certificate and CA, as they expire. */
  expiring(): Iterable<Expiring> {
    return this.#expiry;
  }

  *#unusual(fields: object): Generator<LoggedCondition> {
    yield* expiryConditions(this.#expiry, new Date());
    for (const objection of this.trust.objectionsTo(this.material)) {
      yield {
        level: "error",
        fields,
        message: `the certificate of --peer-cert ${objection}: peers refuse this server`,
      };
    }
  }

  /** Agents of this server work without a certificate for peers. */
  check(now = new Date()): Check {
    const { material } = this;
    const why = unfit(material, now);
    const faults = [...(why === undefined ? [] : [why]), ...this.trust.objectionsTo(material)];
    const detail = faults.join("; ") || `good until ${material.notAfter.toISOString()}`;
    return { name: "peer-certificate", ok: true, hasFaults: faults.length > 0, detail };
  }

  close(): void {
    this.#files.close();
    this.#conditions.close();
  }
}
