import type { AddressInfo } from "node:net";
import { CulvertError } from "../shared/outcomes.ts";
import type { RevocationList } from "../shared/tls/revocation-list.ts";
import type { Peers, PeersSetup } from "./peers/peers.ts";
import type { ServerContext } from "./tunnels/context.ts";
import type { LinkOwners } from "./tunnels/links.ts";

/** The other servers of a fleet, as the composition of a server needs them. Nothing is loaded without `--directory`. */
export class OtherServers {
  readonly #setup: PeersSetup;
  readonly #context: ServerContext;
  #peers: Peers | undefined;

  constructor(setup: PeersSetup, context: ServerContext) {
    this.#setup = setup;
    this.#context = context;
  }

  /** `undefined` without a directory, and until the port is open. */
  get peers(): Peers | undefined {
    return this.#peers;
  }

  /** Opens the port for peers. Rejects with a `ConfigError`. */
  async open(): Promise<{ readonly peers?: AddressInfo }> {
    if (this.#context.options.directory.length === 0) return {};
    const { Peers } = await import("./peers/peers.ts");
    this.#peers = await Peers.start(this.#setup, this.#context);
    return { peers: this.#peers.address };
  }

  /** The servers that have issued the links of other servers; `undefined` without a directory. */
  get owners(): LinkOwners | undefined {
    if (this.#context.options.directory.length === 0) return undefined;
    return {
      open: async (...asked) => {
        if (this.#peers === undefined) throw new CulvertError("draining", "this server is starting");
        return await this.#peers.owners.open(...asked);
      },
    };
  }

  /** For readiness. */
  listeners(): { readonly name: string; readonly up: boolean }[] {
    return this.#peers === undefined ? [] : [{ name: "peers", up: this.#peers.isUp }];
  }

  /** Whether a CA of `--peer-ca-cert` has issued this CRL; before the files are read, it may have. */
  knowsCrl(list: RevocationList): boolean {
    return this.#peers?.knowsCrl(list) ?? this.#context.options.directory.length > 0;
  }
}
