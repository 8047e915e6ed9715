import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { streamKind } from "../../shared/wire/peer-heads.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ClusterTunnels } from "./cluster-tunnels.ts";
import type { ServerContext } from "./context.ts";
import { readHead } from "./incoming-stream.ts";
import type { ConnectedAgent } from "./tunnel.ts";

/** Whose stream it is. */
export interface StreamOpener {
  readonly agent: ConnectedAgent;
  readonly cluster: ClusterTunnels;
  /** The link of its tunnel: where it connects from now. */
  readonly link: { readonly remote: string };
}

/** A kind of streams that agents open, with its bounds for one tunnel: one more stream is reset. */
export interface AgentStreamKind {
  /** The `kind` in the head of its streams, and the feature that both ends have to name in their handshake. */
  readonly kind: string;
  /** Streams that may be open at once. */
  readonly maxOpen: number;
  /** How many may be opened; `burst` below that of `OPENED`. */
  readonly rate: { readonly burst: number; readonly perSecond: number };
  /** Accepts and serves the stream behind its head. */
  readonly serve: (stream: Stream, head: Buffer, opener: StreamOpener, context: ServerContext) => void;
}

/** Streams of no agreed kind that an agent may open before its tunnel ends: each takes the event loop 30 µs. */
const OPENED = { burst: 100, perSecond: 10 };

/** Dispatches the streams that one agent opens by the kind in their head. A kind that was not agreed is reset. */
export class AgentStreams {
  readonly #kinds = new Map<string, AgentStreamKind & { readonly opened: TokenBucket; open: number }>();
  readonly #opened = new TokenBucket(OPENED);
  readonly #opener: StreamOpener;
  readonly #context: ServerContext;

  /** Serves those of the kinds that both ends have named in their `features`. */
  constructor(
    features: ReadonlySet<string>,
    kinds: readonly AgentStreamKind[],
    opener: StreamOpener,
    context: ServerContext,
  ) {
    this.#opener = opener;
    this.#context = context;
    for (const kind of kinds.filter((each) => features.has(each.kind)))
      this.#kinds.set(kind.kind, { ...kind, opened: new TokenBucket(kind.rate), open: 0 });
  }

  /** Throws a violation of the session if the agent opens streams that are not served too often. */
  onStream(stream: Stream): void {
    stream.on("error", ignore);
    if (this.#opened.take(1) > 0) throw new YamuxError("flood", "the agent opens streams again and again");
    if (this.#kinds.size === 0) stream.reset();
    else readHead(stream, (head) => this.#onHead(stream, head));
  }

  #onHead(stream: Stream, head: Buffer): void {
    const kind = this.#kinds.get(streamKind(head) ?? "");
    if (kind === undefined || kind.open >= kind.maxOpen || kind.opened.take(1) > 0) {
      stream.reset();
      return;
    }
    this.#opened.charge(-1);
    kind.open++;
    stream.once("close", () => kind.open--);
    kind.serve(stream, head, this.#opener, this.#context);
  }
}

function ignore(): void {}
