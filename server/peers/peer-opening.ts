import type { Duplex } from "node:stream";
import type { Target } from "../../shared/address/target.ts";
import { Cancellation, inTime } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { encodeCarrier, encodePeerOpen, type PeerAnswer, parsePeerAnswer } from "../../shared/wire/peer-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { HopMetrics } from "../metrics/fleet-metrics.ts";
import type { CarriedFacts } from "../tunnels/links.ts";
import { leftMs, PROBE_MS, untilSilentMs } from "../tunnels/opening.ts";
import type { HopOptions, ServerHop } from "../tunnels/peer-finder.ts";
import type { Location, Locations } from "./directory.ts";
import type { PeerLink } from "./peer-link.ts";
import type { PeerLinks } from "./peer-links.ts";

/** The way of one CONNECT over another server. */
export class PeerHop implements ServerHop {
  readonly location: Location;
  agent: string | undefined;
  readonly #cluster: string;
  readonly #links: PeerLinks;
  readonly #locations: Locations;
  readonly #metrics: HopMetrics;

  constructor(cluster: string, location: Location, links: PeerLinks, locations: Locations, metrics: HopMetrics) {
    this.#cluster = cluster;
    this.location = location;
    this.#links = links;
    this.#locations = locations;
    this.#metrics = metrics;
  }

  get serverId(): string {
    return this.location.serverId;
  }

  async open(target: Target, options: HopOptions): Promise<Stream> {
    const { id, cancellation, ackTimeoutMs, onlyClaimed, watch, memory, traceparent } = options;
    try {
      const link = await inTime(this.#links.get(this.location), cancellation, leftMs(options), () => this.#unreached());
      const timeoutMs = Math.max(1, leftMs(options));
      const head = encodePeerOpen({
        cluster: this.#cluster,
        target,
        id,
        timeoutMs: timeoutMs - ANSWER_MARGIN_MS,
        ...(onlyClaimed && { onlyClaimed }),
        ...(watch && { timed: true }),
        traceparent,
      });
      const leave = link.shares.join(this.#cluster);
      const onAcknowledged = watch && (() => watch.onAcknowledged());
      const opening = openByHead(link, [head], timeoutMs, { cancellation, ackTimeoutMs, memory, onAcknowledged });
      const { stream, answer } = await opening.catch((error: unknown) => {
        leave();
        throw error;
      });
      if (stream.closed) leave();
      else stream.once("close", leave);
      this.agent = answer.agent;
      watch?.onAnswer(answer);
      this.#metrics.opened("ok");
      return stream;
    } catch (error) {
      const failure = toCulvertError(error);
      this.#metrics.opened(failure.code);
      const isUseful = failure.code === "limited" || failure.code === "forbidden" || failure.refusedBy === "agent";
      if (failure.code !== "caller_gone" && !isUseful) this.#locations.drop(this.#cluster, this.location);
      throw failure;
    }
  }

  #unreached(): CulvertError {
    const sentence = `server "${this.serverId}" was not reached in time from server "${this.#links.ownId}": check its process and the path between them`;
    return new CulvertError("peer_lost", sentence);
  }
}

/** Maximum time for the owner's answer, ms. Its caller, which knows the grace of the link, cancels earlier. */
const OWNER_MS = 10_000;

/** Carries the connection of an agent to the server that has issued the agent's link; as `LinkOwners`. */
export async function openAtOwner(
  link: PeerLink,
  { cluster, source, chain }: CarriedFacts,
  signal: AbortSignal,
  options: Omit<PeerOpenOptions, "cancellation">,
): Promise<Duplex> {
  const cancellation = new Cancellation<CulvertError>();
  const onAbort = (): void => cancellation.cancel(new CulvertError("peer_lost", (signal.reason as Error).message));
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  const head = encodeCarrier({ cluster, ...source, chain: chain.map(({ length }) => length) });
  try {
    const { stream } = await openByHead(link, [head, ...chain], OWNER_MS, { ...options, cancellation });
    link.endWhenUnreachable(stream);
    return stream;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

interface PeerOpenOptions {
  readonly cancellation: Cancellation<CulvertError>;
  /**
   * A peer that has not taken the stream and is silent for twice this time does not respond, ms. While bytes of it come
   * it is alive, and its ACK waits behind them.
   */
  readonly ackTimeoutMs: number;
  /** The account for the memory of the stream; absent: the account of links to peers. */
  readonly memory?: MemoryAccount;
  /** The peer has taken the stream. */
  onAcknowledged?: (() => void) | undefined;
}

/** The peer's own timeout has to arrive before ours, so that the caller reads what it says. */
const ANSWER_MARGIN_MS = 50;

/** A stream that the peer has connected to the target, and what it has answered. */
interface OpenedAtPeer {
  readonly stream: Stream;
  readonly answer: PeerAnswer & { readonly ok: true };
}

/**
 * One stream to a peer, from SYN to answer: its head goes with the SYN, and what belongs to the head follows it.
 * Rejects with a `CulvertError`: the peer's own code and sentence, or `peer_lost`, after which another server may be
 * asked, since no byte of the caller was sent.
 */
function openByHead(
  link: PeerLink,
  [head, ...behind]: readonly [Buffer, ...Buffer[]],
  timeoutMs: number,
  options: PeerOpenOptions,
): Promise<OpenedAtPeer> {
  return new Promise((resolve, reject) => {
    const { cancellation, ackTimeoutMs, memory, onAcknowledged } = options;
    const { serverId } = link.location;
    const { ownId } = link;
    const startedAt = performance.now();
    const deadline = startedAt + timeoutMs;
    if (cancellation.reason !== undefined) {
      reject(cancellation.reason);
      return;
    }
    let stream: Stream;
    try {
      stream = link.open(head, memory);
      for (const bytes of behind) stream.write(bytes);
    } catch (error) {
      reject(refusal(error, link));
      return;
    }
    stream.on("error", ignore); // it stays: between answer and splice there is no other listener
    const finish = (): void => {
      clearTimeout(timer);
      stop();
      stream.onAcknowledged = undefined;
      cancellation.onCancelled = undefined;
    };
    const fail = (error: CulvertError): void => {
      finish();
      stream.destroy();
      reject(error);
    };
    const onTimeout = (): void => {
      if (!stream.acknowledged) {
        link.probe(PROBE_MS);
        const waitMs = Math.min(untilSilentMs(link, startedAt, 2 * ackTimeoutMs), deadline - performance.now());
        if (waitMs > 0) {
          timer = setTimeout(onTimeout, waitMs);
          return;
        }
      }
      const sentence = stream.acknowledged
        ? `server "${serverId}" took the request, but did not answer in time`
        : `server "${serverId}" does not respond to server "${ownId}": check its process and the path between them`;
      fail(new CulvertError("peer_lost", sentence, { acknowledged: stream.acknowledged }));
    };
    let timer = setTimeout(onTimeout, Math.min(ackTimeoutMs, timeoutMs));
    stream.onAcknowledged = () => {
      clearTimeout(timer);
      timer = setTimeout(onTimeout, Math.max(1, deadline - performance.now()));
      onAcknowledged?.();
    };
    cancellation.onCancelled = () => fail(cancellation.reason as CulvertError);
    const stop = receiveHead(
      stream,
      (json) => {
        let answer: PeerAnswer;
        try {
          answer = parsePeerAnswer(json);
        } catch (error) {
          const { code, message } = error as CulvertError;
          fail(new CulvertError(code, `server "${serverId}": ${message}`, { cause: error }));
          return;
        }
        if (!answer.ok) {
          fail(answer.error);
          return;
        }
        finish();
        resolve({ stream, answer });
      },
      (cause) => fail(lost(link, cause)),
    );
  });
}

function lost({ location, ownId }: PeerLink, cause: Error): CulvertError {
  const sentence = `the connection to server "${location.serverId}" from server "${ownId}" was lost`;
  return new CulvertError("peer_lost", sentence, { cause });
}

function refusal(error: unknown, link: PeerLink): CulvertError {
  if (!(error instanceof YamuxError)) throw error;
  switch (error.reason) {
    case "overloaded":
    case "pool_full": {
      const sentence = `the link to server "${link.location.serverId}" carries as much as it may (--max-streams, --memory-limit)`;
      return new CulvertError("overloaded", sentence, { cause: error });
    }
    default:
      return lost(link, error);
  }
}

function ignore(): void {}
