import { AuthorityEnds, type Expiring } from "../../shared/tls/expiry.ts";
import type { Validity } from "../../shared/tls/tls-material.ts";
import type { SideName } from "../clusters/cluster.ts";

/** The certificate and CA of one side, and the flags or document keys that name them. */
export interface SideInUse {
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
        ...{ role: `${clients}_cert`, cluster, thing: "certificate", by: by.certificate, fields: certificateFields },
        ...{ notBefore, notAfter, lacksServerAuth, content, consequence: `${clients} refuse this server` },
      };
    }
    const next = this.#authorities.next(ca, new Date());
    if (next !== undefined) {
      yield {
        ...{ role: `${clients}_ca`, cluster, thing: "CA", by: by.ca, fields: caFields, ...next, content: ca },
        consequence: `${clients} with its certificates are refused`,
      };
    }
  }
}
