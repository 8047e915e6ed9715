import { untilAborted } from "../../shared/basics/promises.ts";
import { CARRIER_KIND, streamKind } from "../../shared/wire/peer-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { FromPeer } from "./accepted-peer.ts";
import { CarriedStreams, type CarriedStreamsDeps } from "./carried-streams.ts";
import { type ServePeerDeps, servePeer } from "./serve-peer.ts";

export type PeerStreamsDeps = ServePeerDeps & CarriedStreamsDeps;

/** Time for the head of a stream, which comes with its SYN, ms. */
const HEAD_TIMEOUT_MS = 5_000;

/** The streams that peers open here. */
export class PeerStreams {
  readonly #deps: PeerStreamsDeps;
  readonly #carried: CarriedStreams;
  /** CONNECTs of peers that are open here. */
  readonly #connects = new Set<Promise<void>>();

  constructor(deps: PeerStreamsDeps) {
    this.#deps = deps;
    this.#carried = new CarriedStreams(deps);
  }

  /** Reads the head of a stream, which says of which kind it is. */
  serve(stream: Stream, from: FromPeer): void {
    stream.on("error", () => {}); // a bad peer is never an uncaught error
    stream.accept();
    const timer = setTimeout(() => stream.reset(), HEAD_TIMEOUT_MS).unref();
    receiveHead(
      stream,
      (head) => {
        clearTimeout(timer);
        if (streamKind(head) === CARRIER_KIND) this.#carried.serve(stream, head, from);
        else this.#serveConnect(stream, head, from);
      },
      () => {
        clearTimeout(timer);
        stream.reset();
      },
    );
  }

  #serveConnect(stream: Stream, head: Buffer, from: FromPeer): void {
    const served: Promise<void> = servePeer(stream, head, from, this.#deps).finally(() =>
      this.#connects.delete(served),
    );
    this.#connects.add(served);
  }

  /** Resolves when no CONNECT of a peer is open any more, or after `deadlineMs`. */
  async emptied(deadlineMs: number): Promise<void> {
    const deadline = AbortSignal.timeout(Math.ceil(deadlineMs));
    while (this.#connects.size > 0 && !deadline.aborted) {
      await untilAborted(Promise.all(this.#connects), deadline).catch(() => {});
    }
  }
}
