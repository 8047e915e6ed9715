import { isDeepStrictEqual } from "node:util";
import type { HandshakeBudget } from "../../shared/listen/handshake-queue.ts";
import type { VirtualHost } from "../../shared/listen/tls.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import type { WatchedCrl } from "../../shared/tls/crl-file.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { RevocationList } from "../../shared/tls/revocation-list.ts";
import type { WatchedTls } from "../../shared/tls/tls-files.ts";
import type { TlsMaterial, TlsPair } from "../../shared/tls/tls-material.ts";
import type { AgentSide, CallerSide, ClusterSide, InnerTlsRule } from "../clusters/cluster.ts";
import type { Reach } from "../tokens/review-reach.ts";
import { verifierOf } from "../tokens/settings.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";
import { OpenConnects } from "../tunnels/open-connects.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";
import { HandshakeLimit } from "./handshake-limit.ts";
import { type Clients, missingSentence } from "./missing-material.ts";

export interface VirtualHostDeps {
  /** Who comes to it. */
  readonly clients: Clients;
  /** For what the side leaves out. */
  readonly flags: WatchedTls | undefined;
  readonly flagCrl: Pick<WatchedCrl, "content"> | undefined;
  /** There is no document: the flags are the cluster. */
  readonly isOfFlags: boolean;
  /** `--inner-tls`, for a side that leaves it out. */
  readonly innerTls: InnerTlsRule;
  /** Where to look for who is let in: the words of a refusal. */
  readonly rule: string;
  readonly log: Logger;
  /** The limit of this side came into effect for a client. */
  onHandshakeLimit(): void;
}

/** A unix socket: whoever may write to the file is a caller. */
export interface UnixHost {
  readonly kind: "unix";
  readonly cluster: string;
  /** Of the cluster that it leads to. */
  readonly tunnels: ClusterTunnels;
}

const NO_LISTS: readonly RevocationList[] = [];

/**
 * One side of a cluster on its TLS port: the certificate that it shows, and whom it lets in. What the cluster's document
 * leaves out is the server's flags' to say.
 */
export class ClusterVirtualHost implements VirtualHost {
  readonly kind = "tls";
  readonly tunnels: ClusterTunnels;
  readonly rule: string;
  /** The TLS handshakes under this side's names. */
  readonly handshakes: HandshakeLimit;
  /** CONNECTs of those who came through it as callers. */
  readonly open = new OpenConnects();
  readonly #clients: Clients;
  readonly #flags: WatchedTls | undefined;
  readonly #isOfFlags: boolean;
  readonly #innerTls: InnerTlsRule;
  readonly #log: Logger;
  readonly #flagCrl: Pick<WatchedCrl, "content"> | undefined;
  #side: AgentSide | CallerSide;
  #suspended = false;
  #verifier: TokenVerifier | undefined;
  #tokenProblem: string | undefined;
  #tls: TlsMaterial | undefined;
  #trust: ClientTrust | undefined;

  /** Throws a sentence about a token setting that cannot be. */
  constructor(tunnels: ClusterTunnels, side: AgentSide | CallerSide, deps: VirtualHostDeps) {
    const { clients, flags, flagCrl, isOfFlags, innerTls, rule, log, onHandshakeLimit } = deps;
    this.tunnels = tunnels;
    this.#clients = clients;
    this.rule = rule;
    this.handshakes = new HandshakeLimit({ onReached: onHandshakeLimit });
    this.#flags = flags;
    this.#flagCrl = flagCrl;
    this.#isOfFlags = isOfFlags;
    this.#innerTls = innerTls;
    this.#log = log;
    this.#side = side;
    this.#verifier = side.token && verifierOf(side.token, log, this.#onReach);
  }

  get limitsHandshakes(): boolean {
    return this.handshakes.isSet;
  }

  handshakeBudget(address: string): HandshakeBudget {
    return this.handshakes.budgetFor(address);
  }

  proved(address: string): void {
    this.handshakes.proved(address);
  }

  /** May agents whose outer TLS ends in between prove themselves inside? */
  get innerTls(): InnerTlsRule {
    return ("innerTls" in this.#side && this.#side.innerTls) || this.#innerTls;
  }

  get cluster(): string {
    return this.tunnels.name;
  }

  get side(): ClusterSide {
    return this.#side;
  }

  get identities(): ClusterSide["identities"] {
    return this.#side.identities;
  }

  /** Present: tokens are taken here. Another object when the rules for them are others. */
  get verifier(): TokenVerifier | undefined {
    return this.#verifier;
  }

  readonly #onReach = (reach: Reach): void => {
    const { cluster } = this;
    if (reach.state === "failing") this.#log.warn({ cluster, reason: reach.fault }, "tokens cannot be judged");
    else this.#log.info({ cluster }, "tokens can be judged: the API server has answered");
  };

  close(): void {
    this.#verifier?.close();
  }

  /** Another version of the document. */
  update(side: ClusterSide, suspended: boolean): void {
    if (this.#tokenProblem !== undefined || !isDeepStrictEqual(side.token, this.#side.token)) this.#renewVerifier(side);
    this.#side = side;
    this.#suspended = suspended;
  }

  #renewVerifier({ token }: ClusterSide): void {
    const before = this.#verifier;
    try {
      this.#verifier = token && verifierOf(token, this.#log, this.#onReach);
      this.#tokenProblem = undefined;
      before?.close();
    } catch (error) {
      const reason = (error as Error).message;
      this.#tokenProblem = `cluster "${this.cluster}": ${reason}`;
      this.#log.error({ cluster: this.cluster, reason }, "new rules for tokens are not usable, the old ones stay");
    }
  }

  /** What the side has together with the flags; `undefined`: a certificate or a CA is missing. */
  get material(): TlsMaterial | undefined {
    if (this.#isUnixOnly) return undefined;
    const { certificate, ca } = this.#given;
    if (certificate === undefined || ca === undefined) return undefined;
    const { cert, key, notAfter } = certificate;
    // The same object as long as nothing has changed: a TLS context costs 3 ms.
    if (this.#tls?.cert !== cert || this.#tls.key !== key || this.#tls.ca !== ca)
      this.#tls = { cert, key, ca, notAfter };
    return this.#tls;
  }

  get #given(): { certificate: Pick<TlsMaterial, "cert" | "key" | "notAfter"> | undefined; ca: string | undefined } {
    const flags = this.#flags?.content;
    const { certificate = flags, ca = this.#fallbackCa(flags) } = this.#side;
    return { certificate, ca };
  }

  /** What keeps everybody from coming over TLS, if somebody was meant to: `agents.ca is missing: …`. */
  get missing(): string | undefined {
    if (this.#isUnixOnly || this.#isOfFlags) return undefined;
    const { certificate, ca } = this.#given;
    return missingSentence(this.#clients, { certificate: certificate === undefined, ca: ca === undefined });
  }

  /** Agents without names may be meant for `--agent-insecure-port` alone, where a token is all that they need. */
  get mayDoWithoutTls(): boolean {
    const { sni, token } = this.#side;
    return this.#clients === "agents" && sni.length === 0 && token !== undefined && this.innerTls === "never";
  }

  /** Whoever proves himself by a token needs no CA. */
  #fallbackCa(flags: TlsMaterial | undefined): string | undefined {
    if (!this.#meansFlagCa) return "";
    return flags?.ca ?? (this.#side.token === undefined ? undefined : "");
  }

  /** Where a document says whose tokens count, and names no identities, certificates are not meant. */
  get #meansFlagCa(): boolean {
    const { token, identities } = this.#side;
    return token === undefined || this.#isOfFlags || identities.length > 0;
  }

  /** The flags have a CA for this side, and it verifies nobody here, because the cluster's document wants tokens. */
  get passesOverFlagCa(): boolean {
    const { ca = "" } = this.#flags?.content ?? {};
    return ca !== "" && this.#side.ca === undefined && !this.#meansFlagCa;
  }

  /** By its document nobody comes over TLS: not even when it is the only cluster, under any name. */
  get #isUnixOnly(): boolean {
    return !this.#isOfFlags && "uds" in this.#side && this.#side.uds !== undefined && this.#side.sni.length === 0;
  }

  /** What its document has it show; `undefined`: what the flags say, or nothing. */
  get ownCertificate(): TlsPair | undefined {
    return this.#isUnixOnly ? undefined : this.#side.certificate;
  }

  /** By which its document has clients verified; `undefined`: by what the flags say, or none. */
  get ownCa(): string | undefined {
    return this.#isUnixOnly ? undefined : this.#side.ca;
  }

  /** By which certificates are verified now. */
  get ca(): string | undefined {
    return this.material?.ca;
  }

  /** The same with CRLs, for certificates that a handshake has verified by the CA alone. */
  get trust(): ClientTrust {
    const ca = this.ca ?? "";
    const lists = (this.#side.crl ?? this.#flagCrl?.content)?.lists ?? NO_LISTS;
    if (this.#trust?.ca !== ca || this.#trust.lists !== lists) this.#trust = new ClientTrust(ca, lists);
    return this.#trust;
  }

  /** What the CRLs say against a certificate that a handshake has just verified; continues "the client certificate". */
  crlFault({ chain }: PeerIdentity): string | undefined {
    const { trust } = this;
    if (trust.lists.length === 0) return undefined;
    const standing = trust.standing(chain, new Date());
    if (standing === "stands") return undefined;
    if (standing === "revoked") return "is revoked";
    return standing === "stale"
      ? "cannot be accepted, because the CRL of its CA has expired: this server needs a new one"
      : "is not signed by a CA that is accepted here";
  }

  /** Why the rules for tokens are not those of its document. */
  get tokenProblem(): string | undefined {
    return this.#tokenProblem;
  }

  get tls(): TlsMaterial {
    const { material } = this;
    if (material === undefined) throw new Error(`cluster "${this.cluster}" has no certificate on this port`);
    return material;
  }

  /** What speaks against whoever comes from `address`, beside the name. */
  objection(address: string): CulvertError | undefined {
    if (this.#suspended) return new CulvertError("forbidden", `cluster "${this.cluster}" is suspended`);
    return this.notFrom(address);
  }

  /** The same without `suspended`, which lets open connections end in order. */
  notFrom(address: string): CulvertError | undefined {
    const { sourceCIDRs } = this.#side;
    if (sourceCIDRs === undefined || sourceCIDRs.includes(address)) return undefined;
    const from = printable(address, 50);
    return new CulvertError("forbidden", `cluster "${this.cluster}" is not open to ${from} (sourceCIDRs)`);
  }
}
