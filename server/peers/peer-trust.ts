import type { X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, PeerCertificate } from "node:tls";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { certificates, usageOf } from "../../shared/tls/certificate-fields.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import {
  type IdentityPattern,
  identityIn,
  matches,
  type PeerIdentity,
  parsePattern,
  readNames,
  subjectOf,
  verifyPeer,
} from "../../shared/tls/identity.ts";
import type { RevocationList } from "../../shared/tls/revocation-list.ts";
import type { ServerTls } from "../../shared/tls/tls-material.ts";

/**
 * How two servers know each other. Both show a certificate of `--peer-ca-cert`, and both ask for the role that
 * `--peer-identities` describes: under one CA, an agent or a caller has a certificate, too. The host name does not
 * count, since addresses come from the directory, which is not trusted.
 */
export class PeerTrust {
  readonly #identities: readonly IdentityPattern[];
  readonly #material: () => ServerTls;
  readonly #crls: () => readonly RevocationList[];
  #known: ClientTrust | undefined;

  /** `crls`: those of `--client-crl-file`; another array whenever they change. */
  constructor(identities: readonly string[], material: () => ServerTls, crls: () => readonly RevocationList[]) {
    this.#identities = identities.map(parsePattern);
    this.#material = material;
    this.#crls = crls;
  }

  /** `--peer-ca-cert` and its CRLs, for certificates that a handshake has verified. */
  get #trust(): ClientTrust {
    const { ca } = this.#material();
    const lists = this.#crls();
    if (this.#known?.ca !== ca || this.#known.lists !== lists) this.#known = new ClientTrust(ca, lists);
    return this.#known;
  }

  /** Whether a CA of `--peer-ca-cert` has issued this CRL. */
  knows(list: RevocationList): boolean {
    return this.#trust.knows(list);
  }

  /** The identity of a server that has connected to this one; throws `unauthenticated` or `forbidden`. */
  verify({ socket, verifiedBy }: Pick<IncomingConnection, "socket" | "verifiedBy">): PeerIdentity {
    const { identity, refusal, fault: credentialFault } = verifyPeer(socket, verifiedBy);
    if (identity === undefined) throw new CulvertError("unauthenticated", refusal, { fault: credentialFault });
    if (verifiedBy !== this.#material().ca) {
      throw new CulvertError("unauthenticated", "--peer-ca-cert has changed during the handshake: connect again");
    }
    const fault = this.#trust.crlFault(identity.chain);
    if (fault !== undefined) throw new CulvertError("unauthenticated", `the client certificate ${fault}`);
    if (!this.#permits(identity)) throw new CulvertError("forbidden", this.#sentence(identity));
    return identity;
  }

  /** Why a link that was verified before would not be accepted now; `undefined`: it would. */
  objection(identity: PeerIdentity, now: Date): string | undefined {
    if (identity.notAfter <= now) return "its certificate has expired";
    const status = this.#trust.status(identity.chain);
    if (status === "valid") return undefined;
    return status === "revoked" ? "its certificate is revoked" : "its certificate is of no CA any more";
  }

  isRevoked({ chain }: PeerIdentity): boolean {
    const trust = this.#trust;
    return trust.lists.length > 0 && trust.status(chain) === "revoked";
  }

  /** What this server would object to in a certificate of another one, apart from its dates: CA, CRL, role, usage. */
  objectionsTo({ cert }: Pick<ServerTls, "cert">): string[] {
    const chain = certificates(cert);
    const [leaf] = chain;
    if (leaf === undefined) return [];
    const status = this.#trust.status(chain.map(({ raw }) => raw));
    const { clients, any } = usageOf(leaf);
    return [
      ...(status === "untrusted" ? ["comes from no CA in --peer-ca-cert"] : []),
      ...(status === "revoked" ? ["is revoked (--client-crl-file)"] : []),
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

  /**
   * TLS options of a dial. The chain is verified by TLS, CRL and role by `checkServerIdentity`, before a byte is sent.
   * `onVerified` learns who is there.
   */
  dialTls(onVerified: (identity: PeerIdentity) => void) {
    const { cert, key, ca } = this.#material();
    return {
      ...{ cert, key, ca },
      checkServerIdentity: (_host: string, certificate: PeerCertificate): Error | undefined => {
        try {
          const identity = identityIn(certificate as DetailedPeerCertificate); // with its issuers (https.request)
          const fault = this.#trust.crlFault(identity.chain);
          if (fault !== undefined) return new Error(`its certificate ${fault}`);
          if (!this.#permits(identity)) return new Error(this.#sentence(identity));
          onVerified(identity);
          return undefined;
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
