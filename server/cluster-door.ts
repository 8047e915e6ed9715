import type { TlsDoor } from "../shared/net/tls.ts";
import type { WatchedTls } from "../shared/net/tls-files.ts";
import type { TlsMaterial } from "../shared/net/tls-material.ts";
import { CulvertError, printable } from "../shared/outcomes.ts";
import type { ClusterSide } from "./clusters/cluster.ts";
import type { ClusterTunnels } from "./tunnels/registry.ts";

/**
 * One side of a cluster on its TLS port: the certificate that it shows, and whom it lets in. What the cluster's document
 * leaves out is the server's flags' to say.
 */
export class ClusterDoor implements TlsDoor {
  readonly kind = "tls";
  readonly tunnels: ClusterTunnels;
  /** Where to look for who is let in: the words of a refusal. */
  readonly rule: string;
  readonly #flags: WatchedTls | undefined;
  #side: ClusterSide;
  #suspended = false;
  #tls: TlsMaterial | undefined;
  #tlsOfFlags: TlsMaterial | undefined;

  constructor(tunnels: ClusterTunnels, side: ClusterSide, flags: WatchedTls | undefined, rule: string) {
    this.tunnels = tunnels;
    this.rule = rule;
    this.#flags = flags;
    this.#side = side;
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

  /** Another version of the document. */
  update(side: ClusterSide, suspended: boolean): void {
    this.#side = side;
    this.#suspended = suspended;
    this.#tls = undefined;
  }

  /** What the side has together with the flags; `undefined`: a certificate or a CA is missing. */
  get material(): TlsMaterial | undefined {
    const flags = this.#flags?.material;
    if (this.#tls !== undefined && this.#tlsOfFlags === flags) return this.#tls;
    const { certificate = flags, ca = flags?.ca } = this.#side;
    this.#tlsOfFlags = flags;
    this.#tls = certificate === undefined || ca === undefined ? undefined : { ...certificate, ca };
    return this.#tls;
  }

  get tls(): TlsMaterial {
    const { material } = this;
    if (material === undefined) throw new Error(`cluster "${this.cluster}" has no certificate on this port`);
    return material;
  }

  /** What speaks against whoever comes from `address`, beside the name. */
  objection(address: string): CulvertError | undefined {
    if (this.#suspended) return new CulvertError("forbidden", `cluster "${this.cluster}" is suspended`);
    const { sourceCIDRs } = this.#side;
    if (sourceCIDRs === undefined || sourceCIDRs.includes(address)) return undefined;
    const from = printable(address, 50);
    return new CulvertError("forbidden", `cluster "${this.cluster}" is not open to ${from} (sourceCIDRs)`);
  }
}
