import { untilAborted } from "../../shared/basics/promises.ts";
import { streamKind } from "../../shared/wire/peer-head.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { FromPeer } from "./accepted-peer.ts";
import { type ServePeerDeps, servePeer } from "./serve-peer.ts";

/** Serves one stream of a peer, whose head says of which kind it is. Never throws. */
export type PeerStreamHandler = (stream: Stream, head: Buffer, from: FromPeer) => void;

export interface PeerStreamsDeps extends ServePeerDeps {
  /** By the kind in their heads: what serves streams between servers that are no CONNECT. */
  readonly handlers: ReadonlyMap<string, PeerStreamHandler>;
}

/** Time for the head of a stream, which comes with its SYN, ms. */
const HEAD_TIMEOUT_MS = 5_000;

/** The streams that peers open here. */
export class PeerStreams {
  readonly #deps: PeerStreamsDeps;
  /** CONNECTs of peers that are open here. */
  readonly #connects = new Set<Promise<void>>();

  constructor(deps: PeerStreamsDeps) {
    this.#deps = deps;
  }

  /** Reads the head of a stream and gives it to the handler of its kind. */
  serve(stream: Stream, from: FromPeer): void {
    stream.on("error", () => {}); // a bad peer is never an uncaught error
    stream.accept();
    const timer = setTimeout(() => stream.reset(), HEAD_TIMEOUT_MS).unref();
    receiveHead(
      stream,
      (head) => {
        clearTimeout(timer);
        const handler = this.#deps.handlers.get(streamKind(head) ?? "");
        if (handler !== undefined) handler(stream, head, from);
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
