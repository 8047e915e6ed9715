import { GrowingBytes } from "../../shared/basics/bytes.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { CulvertError, printable, toCulvertError } from "../../shared/outcomes.ts";
import { MAX_CHAIN } from "../../shared/tls/certificate-fields.ts";
import { MAX_CHAIN_BYTES } from "../../shared/tls/identity.ts";
import {
  CARRIER_KIND,
  type CarrierRequest,
  encodePeerAnswer,
  parseCarrier,
  streamKind,
} from "../../shared/wire/peer-heads.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { endWithAnswer, readHead } from "../tunnels/incoming-stream.ts";
import type { TakeCarried } from "../tunnels/links.ts";
import type { FromPeer } from "./accepted-peers.ts";
import { servePeer } from "./serve-peer.ts";

/** The streams that peers open here. */
export class PeerStreams {
  readonly #takeCarried: TakeCarried;
  readonly #context: ServerContext;
  /** CONNECTs of peers that are open here. */
  readonly #connects = new Set<Promise<void>>();

  constructor(takeCarried: TakeCarried, context: ServerContext) {
    this.#takeCarried = takeCarried;
    this.#context = context;
  }

  /** Reads the head of a stream, which says of which kind it is. */
  serve(stream: Stream, from: FromPeer): void {
    stream.on("error", () => {}); // a bad peer is never an uncaught error
    stream.accept();
    readHead(stream, (head) => {
      if (streamKind(head) === CARRIER_KIND) serveCarried(stream, head, from, this.#takeCarried, this.#context);
      else this.#serveConnect(stream, head, from);
    });
  }

  #serveConnect(stream: Stream, head: Buffer, from: FromPeer): void {
    const served: Promise<void> = servePeer(stream, head, from, this.#context).finally(() =>
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

/**
 * Maximum number of connections that are carried here over one link at once. It bounds what a faulty server takes; in a
 * fleet that works, `Carrying` of the other server stays far below.
 */
export const MAX_FROM_ONE = 16_384;
/** Time for the certificates after the head, ms: they are sent at once. */
const CHAIN_TIMEOUT_MS = 5_000;

/** A connection of an agent that another server carries here, until the port of agents takes it. Never throws. */
export function serveCarried(
  stream: Stream,
  head: Buffer,
  from: FromPeer,
  takeCarried: TakeCarried,
  { clusters, throttledLog }: ServerContext,
): void {
  const refuse = (error: unknown): void => {
    const refusal = toCulvertError(error);
    const line = { peer: from.serverId, remote: from.remote, reason: printable(refusal.message) };
    throttledLog.write("warn", line, "connection not taken from a peer");
    endWithAnswer(stream, encodePeerAnswer({ ok: false, error: refusal }));
  };
  try {
    const request = parseCarrier(head);
    countCarried(stream, from);
    readChain(stream, request, (chain) => {
      try {
        const { cluster, address, port } = request;
        const memory = clusters.get(cluster)?.tunnels.memory;
        if (memory !== undefined) stream.chargeTo(memory);
        takeCarried(stream, { cluster, source: { address: printable(address), port }, chain }, from.serverId);
        stream.write(encodePeerAnswer({ ok: true, agent: "" })); // before what the agent reads
      } catch (error) {
        refuse(error);
      }
    });
  } catch (error) {
    refuse(error);
  }
}

function countCarried(stream: Stream, from: FromPeer): void {
  const { serverId, carried } = from;
  if (carried >= MAX_FROM_ONE) {
    throw new CulvertError("overloaded", `server "${serverId}" carries ${carried} connections here, the limit`);
  }
  from.carried++;
  stream.once("close", () => from.carried--);
}

/**
 * Reads the certificates after the head. Throws a `CulvertError` if they are longer than those of an agent may be.
 * Bytes after them before the answer are a violation: the stream is reset, as it is when they do not come.
 */
function readChain(stream: Stream, { chain }: CarrierRequest, onChain: (chain: readonly Buffer[]) => void): void {
  const length = chain.reduce((sum, each) => sum + each, 0);
  if (chain.length > MAX_CHAIN || length > MAX_CHAIN_BYTES) {
    throw new CulvertError("forbidden", "the agent's certificate and what came with it are longer than 32 KiB");
  }
  const read = new GrowingBytes();
  const timer = setTimeout(() => stream.reset(), CHAIN_TIMEOUT_MS).unref();
  const stop = (): void => {
    clearTimeout(timer);
    stream.off("readable", onReadable).off("close", stop);
  };
  const onReadable = (): void => {
    for (let piece = stream.read(); piece !== null; piece = stream.read()) read.append(piece as Buffer);
    if (read.length < length) return;
    stop();
    if (read.length > length) stream.reset();
    else onChain(split(read.bytes, chain));
  };
  stream.on("readable", onReadable).on("close", stop);
  onReadable();
}

function split(bytes: Buffer, lengths: readonly number[]): Buffer[] {
  let end = 0;
  return lengths.map((length) => {
    end += length;
    return Buffer.from(bytes.subarray(end - length, end)); // a copy, which keeps nothing else alive
  });
}
