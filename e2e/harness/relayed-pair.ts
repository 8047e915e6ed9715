import type { Socket } from "node:net";
import { type Faults, OneWay } from "./one-way.ts";

/** `forward` is from whoever dials the relay to what stands behind it. */
export type Direction = "forward" | "backward";

/**
 * How a connection is cut: an orderly end, a reset, or silence. A silenced one is lost as in a middlebox that forgot
 * it: whatever is sent is gone, and neither end is ever told, not even of the other's close.
 */
export type Cut = "fin" | "rst" | "silence";

/** A cut once exactly this number of bytes has been delivered in a direction; with both, whichever is first. */
export interface CutPoint extends Partial<Readonly<Record<Direction, number>>> {
  readonly how: Cut;
}

const FIN_GRACE_MS = 1000;

/** One relayed connection: two sockets, one `OneWay` in each direction. */
export class RelayedPair {
  readonly #sockets: readonly [Socket, Socket];
  readonly #ways: Readonly<Record<Direction, OneWay>>;
  #open = 2;
  #cut: Cut | undefined;
  onCut: (() => void) | undefined;
  onClosed: (() => void) | undefined;

  constructor(dialler: Socket, server: Socket, faults: Record<Direction, Faults>, bytes: Record<Direction, number>) {
    this.#sockets = [dialler, server];
    const count = (direction: Direction) => (length: number) => {
      bytes[direction] += length;
    };
    this.#ways = {
      forward: new OneWay(dialler, server, faults.forward, count("forward")),
      backward: new OneWay(server, dialler, faults.backward, count("backward")),
    };
    for (const socket of this.#sockets) socket.on("close", () => this.#onSocketClose());
  }

  faultsChanged(): void {
    this.#ways.forward.faultsChanged();
    this.#ways.backward.faultsChanged();
  }

  cutAt({ how, forward, backward }: CutPoint): void {
    if (this.#cut !== undefined) return;
    if (forward !== undefined) this.#ways.forward.stopAfter(forward, () => this.cut(how));
    if (backward !== undefined) this.#ways.backward.stopAfter(backward, () => this.cut(how));
  }

  /**
   * Bytes that were held back are lost. A silenced connection may still be ended, by a middlebox that comes back to
   * life.
   */
  cut(how: Cut): void {
    if (this.#cut !== undefined && (this.#cut !== "silence" || how === "silence")) return;
    this.#cut = how;
    this.onCut?.();
    this.#ways.forward.stop();
    this.#ways.backward.stop();
    for (const socket of this.#sockets) {
      if (how === "rst") socket.resetAndDestroy();
      else if (how === "fin") endCleanly(socket);
      else swallow(socket);
    }
  }

  #onSocketClose(): void {
    this.#open--;
    if (this.#open === 0) this.onClosed?.();
  }
}

function endCleanly(socket: Socket): void {
  socket.end();
  socket.resume(); // unread bytes at the close would turn the FIN into a reset
  const timer = setTimeout(() => socket.destroy(), FIN_GRACE_MS);
  socket.on("end", () => socket.destroy());
  socket.on("close", () => clearTimeout(timer));
}

/** Takes what comes until this side's peer gives up by itself. */
function swallow(socket: Socket): void {
  if (socket.readableEnded) {
    socket.destroy();
    return;
  }
  socket.on("end", () => socket.destroy());
  socket.resume();
}
