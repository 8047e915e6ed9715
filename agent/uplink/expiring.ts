import { AuthorityEnds, type Expiring } from "../../shared/tls/expiry.ts";
import type { CredentialFiles, Credentials } from "./credentials.ts";

/** What of an agent's credentials has an end. Authorities in between (`--outer-ca`) are their owner's to look after. */
export class AgentExpiry {
  readonly #files: CredentialFiles & { readonly cluster: string };
  readonly #held: () => Credentials | undefined;
  #authorities = new AuthorityEnds("");

  /** `held`: what the agent shows to its servers now, and believes them by. */
  constructor(files: CredentialFiles & { readonly cluster: string }, held: () => Credentials | undefined) {
    this.#files = files;
    this.#held = held;
  }

  *[Symbol.iterator](): Generator<Expiring> {
    const { cluster, caCert, agentCert, serviceAccountTokenPath } = this.#files;
    const { cert, notBefore, notAfter, ca = "", token } = this.#held() ?? {};
    const consequence = "servers refuse this agent";
    if (cert !== undefined && notBefore !== undefined && notAfter !== undefined) {
      yield {
        ...{ role: "agent_cert", cluster, thing: "certificate", by: "--agent-cert", fields: { file: agentCert } },
        ...{ notBefore, notAfter, content: cert, consequence },
      };
    }
    if (this.#authorities.pem !== ca) this.#authorities = new AuthorityEnds(ca);
    const next = this.#authorities.next(new Date());
    if (next !== undefined) {
      yield {
        ...{ role: "server_ca", cluster, thing: "CA", by: "--ca-cert", fields: { file: caCert }, ...next, content: ca },
        consequence: "this agent refuses servers with its certificates",
      };
    }
    if (token?.expiresAt !== undefined) {
      // The warning times depend on the lifetime of the token. A token without an issue time counts as issued just now
      // at each look, so no warning comes before it has expired.
      const { text: content, expiresAt } = token;
      const { issuedAt = new Date(Math.min(expiresAt.getTime(), Date.now() - 1_000)) } = token;
      yield {
        ...{ role: "token", cluster, thing: "token", by: "--service-account-token-path" },
        ...{
          notBefore: issuedAt,
          notAfter: expiresAt,
          content,
          consequence,
          fields: { file: serviceAccountTokenPath },
        },
      };
    }
  }
}
