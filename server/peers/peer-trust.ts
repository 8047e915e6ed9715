import type { X509Certificate } from "node:crypto";
import type { PeerCertificate } from "node:tls";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { usageOf } from "../../shared/tls/certificate-fields.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import {
  type IdentityPattern,
  matches,
  type PeerIdentity,
  parsePattern,
  readNames,
  subjectOf,
  verifyPeer,
} from "../../shared/tls/identity.ts";
import { certificates, type ServerTls } from "../../shared/tls/tls-material.ts";

/**
 * How two servers know each other. Both show a certificate of `--peer-ca-cert`, and both ask for the role that
 * `--peer-identities` describes: under one CA, an agent or a caller has a certificate, too. The host name does not
 * count, since addresses come from the directory, which is not trusted.
 */
export class PeerTrust {
  readonly #identities: readonly IdentityPattern[];
  readonly #material: () => ServerTls;

  constructor(identities: readonly string[], material: () => ServerTls) {
    this.#identities = identities.map(parsePattern);
    this.#material = material;
  }

  /** The identity of a server that has connected to this one; throws `unauthenticated` or `forbidden`. */
  verify({ socket, verifiedBy }: Pick<IncomingConnection, "socket" | "verifiedBy">): PeerIdentity {
    const { identity, refusal, fault } = verifyPeer(socket, verifiedBy);
    if (identity === undefined) throw new CulvertError("unauthenticated", refusal, { fault });
    if (verifiedBy !== this.#material().ca) {
      throw new CulvertError("unauthenticated", "--peer-ca-cert has changed during the handshake: connect again");
    }
    if (!this.#permits(identity)) throw new CulvertError("forbidden", this.#sentence(identity));
    return identity;
  }

  /** Why a link that was verified before would not be accepted now; `undefined`: it would. */
  objection(identity: PeerIdentity, now: Date): string | undefined {
    if (identity.notAfter <= now) return "its certificate has expired";
    const { ca } = this.#material();
    return new ClientTrust(ca).status(identity.chain) === "valid" ? undefined : "its certificate is of no CA any more";
  }

  /** What this server would object to in a certificate of another one: CA, role, usage. Dates are told apart. */
  objectionsTo({ cert, ca }: Pick<ServerTls, "cert" | "ca">): string[] {
    const chain = certificates(cert);
    const [leaf] = chain;
    if (leaf === undefined) return [];
    const isTrusted = new ClientTrust(ca).status(chain.map(({ raw }) => raw)) === "valid";
    const { clients, any } = usageOf(leaf);
    return [
      ...(isTrusted ? [] : ["comes from no CA in --peer-ca-cert"]),
      ...this.#objectionsToNames(leaf),
      ...(clients || any ? [] : ["has no clientAuth in its extended key usage"]),
    ];
  }

  #objectionsToNames(leaf: X509Certificate): string[] {
    try {
      const identity = readNames(leaf.toLegacyObject());
      return this.#permits(identity) ? [] : [`is ${printable(subjectOf(identity), 120)}, not among --peer-identities`];
    } catch (error) {
      return [(error as Error).message];
    }
  }

  /** TLS options of a dial. The chain is verified by TLS, the role by `checkServerIdentity`, before a byte is sent. */
  get dialTls() {
    const { cert, key, ca } = this.#material();
    return {
      ...{ cert, key, ca },
      checkServerIdentity: (_host: string, certificate: PeerCertificate): Error | undefined => {
        try {
          const identity = readNames(certificate);
          return this.#permits(identity) ? undefined : new Error(this.#sentence(identity));
        } catch (error) {
          return new Error(`its certificate ${(error as Error).message}`);
        }
      },
    };
  }

  #permits(identity: Omit<PeerIdentity, "chain">): boolean {
    return this.#identities.some((pattern) => matches(pattern, identity));
  }

  #sentence(identity: Omit<PeerIdentity, "chain">): string {
    return `the certificate ${printable(subjectOf(identity), 120)} is not among --peer-identities`;
  }
}
