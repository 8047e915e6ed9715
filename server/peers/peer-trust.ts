import type { X509Certificate } from "node:crypto";
import type { DetailedPeerCertificate, PeerCertificate } from "node:tls";
import { ConfigError } from "../../shared/config/options.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { Check } from "../../shared/runtime/check.ts";
import { ConditionLog, type LoggedCondition } from "../../shared/runtime/throttled-log.ts";
import { certificates, usageOf } from "../../shared/tls/certificate-fields.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import { type Expiring, expiryConditions } from "../../shared/tls/expiry.ts";
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
import { type ServerTls, unfit, WatchedTls } from "../../shared/tls/tls-material.ts";
import { SideExpiry } from "../cluster-runtime/flag-certificates.ts";
import type { ServerContext } from "../tunnels/context.ts";

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
  verify({ socket, verifiedBy }: IncomingConnection): PeerIdentity {
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

  /** Objections of this server to a certificate of another one, apart from its dates: CA, CRL, role, usage. */
  objectionsTo({ cert }: ServerTls): string[] {
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
      cert,
      key,
      ca,
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

/**
 * The certificate that this server shows to others, and the CA that theirs come from. In a fleet all have the same
 * options, so what this server would refuse in another one's certificate, others refuse in its own: that is logged.
 */
export class OwnCertificate {
  readonly trust: PeerTrust;
  readonly #files: WatchedTls;
  readonly #expiry: SideExpiry;
  readonly #conditions: ConditionLog;

  /** Throws a `ConfigError`. `crls`: those of `--client-crl-file`; another array whenever they change. */
  constructor({ options, log }: ServerContext, crls: () => readonly RevocationList[], onRenewed: () => void) {
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
      certificate: this.material,
      ca: this.material.ca,
      cluster: "",
      by: { certificate: "--peer-cert", ca: "--peer-ca-cert" },
      certificateFields: { file: certFile },
      caFields: { file: caFile },
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
  check(): Check {
    const { material } = this;
    const why = unfit(material, new Date());
    const { problem } = this.#files;
    const kept = problem === undefined ? [] : [`kept because its files are not usable now (${problem})`];
    const faults = [...(why === undefined ? [] : [why]), ...this.trust.objectionsTo(material), ...kept];
    const detail = faults.join("; ") || `good until ${material.notAfter.toISOString()}`;
    return { name: "peer-certificate", ok: true, hasFaults: faults.length > 0, detail };
  }

  close(): void {
    this.#files.close();
    this.#conditions.close();
  }
}

interface PeerWatchOwner {
  /** The peer shall show its certificate again, on a new connection. */
  onAsk(reason: string): void;
  /** The peer's certificate is not accepted any more, and the peer has shown no other in time. */
  onUntrusted(reason: Error): void;
}

/** How often the certificate of a peer is compared with the clock and the CA, ms. */
const CHECK_MS = 30_000;
/** How long a peer may take to show a new certificate, ms. */
const PATIENCE_MS = 10_000;

/** Watches the certificate that a peer has shown, as long as a link to it or from it is open. */
export class PeerWatch {
  readonly #trust: PeerTrust;
  readonly #owner: PeerWatchOwner;
  readonly #timer: NodeJS.Timeout;
  #identity: PeerIdentity;
  /** Present while the peer has to show another certificate. */
  #due: NodeJS.Timeout | undefined;

  constructor(identity: PeerIdentity, trust: PeerTrust, owner: PeerWatchOwner) {
    this.#identity = identity;
    this.#trust = trust;
    this.#owner = owner;
    this.#timer = setInterval(() => this.verifyAgain(), CHECK_MS).unref();
  }

  /** The peer has shown a certificate again, which was accepted. */
  renewed(identity = this.#identity): void {
    this.#identity = identity;
    clearTimeout(this.#due);
    this.#due = undefined;
  }

  /** To be called when the CA has changed: a peer that would not be accepted now has to show another certificate. */
  verifyAgain(): void {
    const soon = new Date(Date.now() + CHECK_MS);
    const objection = this.#trust.objection(this.#identity, soon);
    if (objection === undefined || this.#due !== undefined) return;
    this.#due = setTimeout(() => this.#onUnproven(), PATIENCE_MS).unref();
    this.#owner.onAsk(`the peer's link has to be verified again: ${objection}`);
  }

  #onUnproven(): void {
    this.#due = undefined;
    const objection = this.#trust.objection(this.#identity, new Date());
    if (objection === undefined) this.verifyAgain();
    else this.#owner.onUntrusted(new Error(objection));
  }

  /** To be called when the CRLs have changed. */
  endIfRevoked(): void {
    if (this.#trust.isRevoked(this.#identity)) this.#owner.onUntrusted(new Error("its certificate is revoked"));
  }

  close(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#due);
  }
}
