import type { AddressInfo } from "node:net";
import { CulvertError } from "../shared/outcomes.ts";
import type { RevocationList } from "../shared/tls/revocation-list.ts";
import type { Peers, PeersDeps } from "./peers/peers.ts";
import type { LinkOwners } from "./tunnels/links.ts";

/** The other servers of a fleet, as the composition of a server needs them. Nothing is loaded without `--directory`. */
export class OtherServers {
  readonly #deps: PeersDeps;
  #peers: Peers | undefined;

  constructor(deps: PeersDeps) {
    this.#deps = deps;
  }

  /** `undefined` without a directory, and until the port is open. */
  get peers(): Peers | undefined {
    return this.#peers;
  }

  /** Opens the port for peers. Rejects with a `ConfigError`. */
  async open(): Promise<{ readonly peers?: AddressInfo }> {
    if (this.#deps.options.directory.length === 0) return {};
    const { Peers } = await import("./peers/peers.ts");
    this.#peers = await Peers.start(this.#deps);
    return { peers: this.#peers.address };
  }

  /** The servers that have issued the links of other servers; `undefined` without a directory. */
  get owners(): LinkOwners | undefined {
    if (this.#deps.options.directory.length === 0) return undefined;
    return {
      open: async (...asked) => {
        if (this.#peers === undefined) throw new CulvertError("draining", "this server is starting");
        return await this.#peers.owners.open(...asked);
      },
    };
  }

  /**
   * In a fleet the logs of several servers have the same id of a CONNECT: it begins with the server that it came to.
   */
  get idPrefix(): string {
    const { directory, serverId } = this.#deps.options;
    return directory.length > 0 ? `${serverId}/` : "";
  }

  /** For readiness. */
  listeners(): { readonly name: string; readonly up: boolean }[] {
    return this.#peers === undefined ? [] : [{ name: "peers", up: this.#peers.isUp }];
  }

  /** Whether a CA of `--peer-ca-cert` has issued this CRL; before the files are read, it may have. */
  knowsCrl(list: RevocationList): boolean {
    return this.#peers?.knowsCrl(list) ?? this.#deps.options.directory.length > 0;
  }
}
