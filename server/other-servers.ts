import type { AddressInfo } from "node:net";
import { CulvertError } from "../shared/outcomes.ts";
import type { Check } from "../shared/runtime/run.ts";
import type { Expiring } from "../shared/tls/expiry.ts";
import type { RevocationList } from "../shared/tls/revocation-list.ts";
import type { Peers, PeersDeps } from "./peers/peers.ts";
import type { LinkOwners } from "./tunnels/links.ts";
import type { PeerFinder } from "./tunnels/open-stream.ts";

/** The other servers of a fleet, as the composition of a server needs them. Nothing is loaded without `--directory`. */
export class OtherServers {
  readonly #deps: PeersDeps;
  #peers: Peers | undefined;

  constructor(deps: PeersDeps) {
    this.#deps = deps;
  }

  /** Opens the port for peers. Rejects with a `ConfigError`. */
  async open(): Promise<{ readonly peers?: AddressInfo }> {
    if (this.#deps.options.directory.length === 0) return {};
    const { Peers } = await import("./peers/peers.ts");
    this.#peers = await Peers.start(this.#deps);
    return { peers: this.#peers.address };
  }

  /** Finds other servers for CONNECTs; `undefined` without a directory. */
  get finder(): PeerFinder | undefined {
    return this.#peers;
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

  checks(): Check[] {
    return this.#peers?.checks() ?? [];
  }

  /** Certificate and CA for peers, as they expire. */
  expiring(): Iterable<Expiring> {
    return this.#peers?.expiring() ?? [];
  }

  /** The CRLs of `--client-crl-file` have changed. */
  onCrlChanged(): void {
    this.#peers?.onCrlChanged();
  }

  /** Whether a CA of `--peer-ca-cert` has issued this CRL; before the files are read, it may have. */
  knowsCrl(list: RevocationList): boolean {
    return this.#peers?.knowsCrl(list) ?? this.#deps.options.directory.length > 0;
  }

  /** CONNECTs without an agent here can go to other servers. */
  get canAsk(): boolean {
    return this.#peers?.canAsk ?? false;
  }

  /** Is not found any more, and refuses CONNECTs of peers. */
  drain(): void {
    this.#peers?.drain();
  }

  /** Resolves when no CONNECT of a peer is open here any more, or after `deadlineMs`. */
  async emptied(deadlineMs: number): Promise<void> {
    await this.#peers?.emptied(deadlineMs);
  }

  /** Ends the links to and from peers; what is open has `deadlineMs` to end. */
  async close(deadlineMs: number): Promise<void> {
    await this.#peers?.close(deadlineMs);
  }

  async destroy(): Promise<void> {
    await this.#peers?.destroy(new Error("this server has ended"));
  }
}
