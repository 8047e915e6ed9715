import { isDeepStrictEqual } from "node:util";
import type { VirtualHost } from "../../shared/listen/listeners.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import type { RevocationList, WatchedCrl } from "../../shared/tls/revocation-list.ts";
import type { TlsMaterial, TlsPair, WatchedTls } from "../../shared/tls/tls-material.ts";
import type { InnerTlsRule } from "../clusters/access-rules.ts";
import type { AgentSide, CallerSide, Cluster, ClusterSide, SideName } from "../clusters/cluster.ts";
import type { CreateVerifier } from "../tokens/create-verifier.ts";
import type { ApiServerState, TokenVerifier } from "../tokens/verifier.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { missingSentence } from "./flag-certificates.ts";
import { HandshakeLimit } from "./handshake-limit.ts";
import { OpenConnects } from "./open-connects.ts";

/** The parts of a server that all its clusters share, beside its context. */
export interface ClusterSetup {
  /** Certificates of the flags, for sides that leave them out. */
  readonly flags: {
    readonly agents: WatchedTls | undefined;
    readonly callers: WatchedTls | undefined;
    /** `--client-crl-file`, for both sides. */
    readonly crl?: WatchedCrl | undefined;
  };
  /** There are no documents: the flags describe the one cluster. */
  readonly isOfFlags: boolean;
  /** Absent where no cluster has rules for tokens. */
  readonly createVerifier?: CreateVerifier | undefined;
}

const NO_LISTS: readonly RevocationList[] = [];

/** A cluster's own unix socket: every process that may write to the file is a caller. */
export interface UnixHost {
  readonly kind: "unix";
  readonly tunnels: ClusterTunnels;
}

/**
 * One side of a cluster on a TLS port, which clients select by SNI: the certificate that it shows, and the credentials
 * that it accepts. The server's flags apply where the cluster's document leaves something out.
 */
export class ClusterVirtualHost implements VirtualHost {
  readonly kind = "tls";
  readonly tunnels: ClusterTunnels;
  /** The flag or key that lists the permitted identities; refusals name it. */
  readonly rule: string;
  /** Limits the TLS handshakes under the names of this side. */
  readonly handshakes: HandshakeLimit;
  /** The open CONNECTs of its callers. */
  readonly open = new OpenConnects();
  /** Present where tokens are accepted. Changed rules for tokens make a new object. */
  verifier: TokenVerifier | undefined;
  /** Why the token rules in force are not those of the document. */
  tokenProblem: string | undefined;
  /** The peers that connect to it. */
  readonly #clients: SideName;
  readonly #setup: ClusterSetup;
  readonly #context: ServerContext;
  #side: AgentSide | CallerSide;
  #suspended = false;
  #tls: TlsMaterial | undefined;
  #trust: ClientTrust | undefined;

  /**
   * Throws a sentence about a token setting that cannot work. `onHandshakeLimit`: the limit of handshakes has stopped a
   * client.
   */
  constructor(
    tunnels: ClusterTunnels,
    clients: SideName,
    side: AgentSide | CallerSide,
    setup: ClusterSetup,
    context: ServerContext,
    onHandshakeLimit: () => void,
  ) {
    this.tunnels = tunnels;
    this.#clients = clients;
    this.#setup = setup;
    this.#context = context;
    this.rule = setup.isOfFlags ? `--${clients.slice(0, -1)}-identities` : `${clients}.identities of its cluster`;
    this.handshakes = new HandshakeLimit(onHandshakeLimit);
    this.#side = side;
    this.verifier = this.#verifierOf(side);
  }

  /** Whether agents may, or must, authenticate by TLS inside the link, because a middlebox ends the TLS outside. */
  get innerTls(): InnerTlsRule {
    return ("innerTls" in this.#side && this.#side.innerTls) || this.#context.options.innerTls;
  }

  /** By default only where the flags are the one cluster, which may have been Konnectivity's. */
  get takesKonnectivity(): boolean {
    if (!this.#context.options.konnectivityAgents) return false;
    return ("konnectivity" in this.#side ? this.#side.konnectivity : undefined) ?? this.#setup.isOfFlags;
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

  readonly #onApiServer = (state: ApiServerState): void => {
    const { cluster } = this;
    const { log } = this.#context;
    if (state.state === "failing") log.warn({ cluster, reason: state.fault }, "tokens cannot be verified");
    else log.info({ cluster }, "tokens can be verified: the API server has answered");
  };

  close(): void {
    this.verifier?.close();
  }

  /** Applies a new version of the document. */
  update(side: ClusterSide, suspended: boolean): void {
    if (this.tokenProblem !== undefined || !isDeepStrictEqual(side.token, this.#side.token)) this.#renewVerifier(side);
    this.#side = side;
    this.#suspended = suspended;
  }

  #verifierOf({ token }: ClusterSide): TokenVerifier | undefined {
    if (token === undefined) return undefined;
    const { createVerifier } = this.#setup;
    if (createVerifier === undefined) throw new Error("tokens cannot be verified by this server");
    return createVerifier(token, this.#context.log, this.#onApiServer);
  }

  #renewVerifier(side: ClusterSide): void {
    const before = this.verifier;
    try {
      this.verifier = this.#verifierOf(side);
      this.tokenProblem = undefined;
      before?.close();
    } catch (error) {
      const reason = (error as Error).message;
      this.tokenProblem = `cluster "${this.cluster}": ${reason}`;
      this.#context.log.error(
        { cluster: this.cluster, reason },
        "new token rules cannot be used; the old ones stay in force",
      );
    }
  }

  /** The certificate and CA of the side, completed by the flags; `undefined` if one of them is missing. */
  get material(): TlsMaterial | undefined {
    if (this.#isUnixOnly) return undefined;
    const { certificate, ca } = this.#given;
    if (certificate === undefined || ca === undefined) return undefined;
    const { cert, key, notAfter } = certificate;
    // A new object costs a TLS context, which takes 3 ms.
    if (this.#tls?.cert !== cert || this.#tls.key !== key || this.#tls.ca !== ca)
      this.#tls = { cert, key, ca, notAfter };
    return this.#tls;
  }

  /** The certificates of the flags, for what the side leaves out. */
  get #ofFlags(): TlsMaterial | undefined {
    return this.#setup.flags[this.#clients]?.content;
  }

  get #given(): { certificate: Pick<TlsMaterial, "cert" | "key" | "notAfter"> | undefined; ca: string | undefined } {
    const flags = this.#ofFlags;
    const { certificate = flags, ca = this.#fallbackCa(flags) } = this.#side;
    return { certificate, ca };
  }

  /** Why nobody can connect over TLS although somebody was meant to, such as `agents.ca is missing: …`. */
  get missing(): string | undefined {
    if (this.#isUnixOnly || this.#setup.isOfFlags) return undefined;
    const { certificate, ca } = this.#given;
    return missingSentence(this.#clients, { certificate: certificate === undefined, ca: ca === undefined });
  }

  /** Agents with a token and without names may be meant for `--agent-insecure-port`, which needs no certificate. */
  get worksWithoutTls(): boolean {
    const { sni, token } = this.#side;
    return this.#clients === "agents" && sni.length === 0 && token !== undefined && this.innerTls === "never";
  }

  /** A side that accepts tokens needs no CA. */
  #fallbackCa(flags: TlsMaterial | undefined): string | undefined {
    if (!this.#usesFlagCa) return "";
    return flags?.ca ?? (this.#side.token === undefined ? undefined : "");
  }

  /** A document that accepts tokens and lists no identities accepts no certificates of the flags' CA. */
  get #usesFlagCa(): boolean {
    const { token, identities } = this.#side;
    return token === undefined || this.#setup.isOfFlags || identities.length > 0;
  }

  /** The flags have a CA for this side, but the document accepts tokens only. */
  get ignoresFlagCa(): boolean {
    const { ca = "" } = this.#ofFlags ?? {};
    return ca !== "" && this.#side.ca === undefined && !this.#usesFlagCa;
  }

  /**
   * The document gives callers a unix socket and no names, so nobody connects over TLS, even if it is the only cluster.
   */
  get #isUnixOnly(): boolean {
    return !this.#setup.isOfFlags && "uds" in this.#side && this.#side.uds !== undefined && this.#side.sni.length === 0;
  }

  /** The certificate of its document, if there is one. */
  get ownCertificate(): TlsPair | undefined {
    return this.#isUnixOnly ? undefined : this.#side.certificate;
  }

  /** The CA of its document, if there is one. */
  get ownCa(): string | undefined {
    return this.#isUnixOnly ? undefined : this.#side.ca;
  }

  /** The CA that verifies certificates now. */
  get ca(): string | undefined {
    return this.material?.ca;
  }

  /** The CA together with its CRLs; the TLS handshake verifies by the CA alone. */
  get trust(): ClientTrust {
    const ca = this.ca ?? "";
    const lists = (this.#side.crl ?? this.#setup.flags.crl?.content)?.lists ?? NO_LISTS;
    if (this.#trust?.ca !== ca || this.#trust.lists !== lists) this.#trust = new ClientTrust(ca, lists);
    return this.#trust;
  }

  get tls(): TlsMaterial {
    const { material } = this;
    if (material === undefined) throw new Error(`cluster "${this.cluster}" has no certificate on this port`);
    return material;
  }

  /** Why a client from `address` is refused whatever its credential; `undefined` if it is not. */
  objection(address: string): CulvertError | undefined {
    if (this.#suspended) return new CulvertError("forbidden", `cluster "${this.cluster}" is suspended`);
    return this.sourceObjection(address);
  }

  /** As `objection`, but ignores `suspended`, which lets open connections end cleanly. */
  sourceObjection(address: string): CulvertError | undefined {
    const { sourceCIDRs } = this.#side;
    if (sourceCIDRs === undefined || sourceCIDRs.includes(address)) return undefined;
    const from = printable(address, 50);
    return new CulvertError("forbidden", `cluster "${this.cluster}" is not open to ${from} (sourceCIDRs)`);
  }
}

/** Warns of a side of a cluster that nobody can reach over TLS. */
export function missingWarning(
  { name, file }: Cluster,
  { missing, worksWithoutTls }: ClusterVirtualHost,
): string | undefined {
  if (missing === undefined) return undefined;
  const only = worksWithoutTls ? ", so its agents can come by --agent-insecure-port only" : "";
  return `${file}: cluster "${name}": ${missing}${only}`;
}
