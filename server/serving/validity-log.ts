import { LookTimer } from "../../shared/net/look-timer.ts";
import { NO_SERVER_AUTH, type TlsPair, unfit } from "../../shared/net/tls-material.ts";
import type { Logger } from "../../shared/process/logger.ts";
import type { Place } from "../../shared/queue.ts";

/** A certificate that the server shows, as the log speaks of it. */
export interface ShownCertificate {
  readonly certificate: Pick<TlsPair, "cert" | "notBefore" | "notAfter" | "lacksServerAuth">;
  /** The flag, or the key of a document, that names it. */
  readonly by: string;
  readonly clients: "agents" | "callers";
  /** Where that is written. */
  readonly fields: { readonly cluster?: string; readonly file: string };
}

/** How often it is looked whether a certificate has expired in use, ms. */
const LOOK_MS = 60_000;

/** Tells once of a certificate that clients refuse it for its dates or its usage: when it comes into use, and when it expires in use. */
export class ValidityLog {
  readonly #place: Place<() => void>;
  readonly #log: Pick<Logger, "error">;
  readonly #shown: () => ShownCertificate | undefined;
  #told: string | undefined;

  /** `shown`: what is in use now; it looks at that until it is closed. */
  constructor(log: Pick<Logger, "error">, shown: () => ShownCertificate | undefined) {
    this.#log = log;
    this.#shown = shown;
    this.look();
    this.#place = LookTimer.every(LOOK_MS).add(this.look);
  }

  close(): void {
    this.#place.leave();
  }

  /** To be called when another certificate may be in use. */
  readonly look = (): void => {
    const shown = this.#shown();
    const now = new Date();
    const fault = shown && unfit(shown.certificate, now);
    const found = fault && `${fault}\n${shown.certificate.cert}`;
    if (found !== undefined && found !== this.#told) this.#tell(shown as ShownCertificate, now);
    this.#told = found;
  };

  #tell({ certificate, by, clients, fields }: ShownCertificate, now: Date): void {
    const { notBefore, notAfter } = certificate;
    const late = notAfter <= now ? "has expired" : undefined;
    const early = notBefore > now ? "is not yet valid" : undefined;
    const state = late ?? early ?? NO_SERVER_AUTH;
    const line = { ...fields, notBefore, notAfter };
    this.#log.error(line, `the certificate of ${by} ${state}: ${clients} refuse this server`);
  }
}
