import { BySource } from "../../shared/basics/by-source.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** Maximum number of peers whose links are open: there are fewer servers than this. */
const MAX_PEERS = 1_024;

interface OpenPeer {
  destroy(reason: Error): void;
}

/**
 * The peers whose links are open here. A server has one link here, and a few while it changes its certificate or starts
 * again; one that dials again and again, or a stolen certificate, must not keep the others out.
 */
export class OpenPeers<T extends OpenPeer> {
  readonly #most: number;
  readonly #peers = new BySource<T>();

  constructor(most = MAX_PEERS) {
    this.#most = most;
  }

  get size(): number {
    return this.#peers.size;
  }

  [Symbol.iterator](): IterableIterator<T> {
    return this.#peers[Symbol.iterator]();
  }

  /**
   * Where all places are taken, ends the oldest link of the network that has most. Throws `LinkRefused` if none has
   * more than the network of the newcomer would have.
   */
  makeRoom(network: string): void {
    const { size, fullest, oldestOfFullest } = this.#peers;
    if (size < this.#most) return;
    if (fullest <= this.#peers.sizeOf(network) + 1) {
      throw new LinkRefused({ closeCode: CloseCode.limited, reason: `${size} peers are connected, the limit` });
    }
    if (oldestOfFullest === undefined) return;
    this.#peers.delete(oldestOfFullest);
    oldestOfFullest.destroy(new Error(`its network has ${fullest} links here, and its place was needed`));
  }

  add(peer: T, network: string): void {
    this.#peers.add(peer, network);
  }

  delete(peer: T): void {
    this.#peers.delete(peer);
  }
}
