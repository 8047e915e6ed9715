import type { Target } from "../../shared/address/target.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { HopMetrics } from "../metrics/hop-metrics.ts";
import type { HopOptions, ServerHop } from "../tunnels/open-stream.ts";
import type { Location } from "./directory.ts";
import type { PeerLink } from "./peer-link.ts";
import { openAtPeer } from "./peer-opening.ts";

export interface PeerHopDeps {
  readonly links: { readonly ownId: string; get(location: Location): Promise<PeerLink> };
  readonly metrics: Pick<HopMetrics, "opened">;
  /** The server has not done what the directory said of it. */
  onUseless(cluster: string, location: Location): void;
}

/** The way of one CONNECT over another server. */
export class PeerHop implements ServerHop {
  readonly location: Location;
  agent: string | undefined;
  readonly #cluster: string;
  readonly #deps: PeerHopDeps;

  constructor(cluster: string, location: Location, deps: PeerHopDeps) {
    this.#cluster = cluster;
    this.location = location;
    this.#deps = deps;
  }

  get serverId(): string {
    return this.location.serverId;
  }

  async open(target: Target, options: HopOptions): Promise<Stream> {
    const { links, metrics, onUseless } = this.#deps;
    const { id, cancellation, timeoutMs, ackTimeoutMs, onlyClaimed, watch, memory } = options;
    const deadline = performance.now() + timeoutMs;
    try {
      const link = await this.#inTime(links.get(this.location), cancellation, timeoutMs);
      const { stream, answer } = await openAtPeer(
        link,
        {
          ...{ cluster: this.#cluster, target, id, timeoutMs: Math.max(1, deadline - performance.now()) },
          ...(onlyClaimed && { onlyClaimed }),
          ...(watch && { timed: true }),
        },
        { cancellation, ackTimeoutMs, memory, onAcknowledged: watch && (() => watch.onAcknowledged()) },
      );
      this.agent = answer.agent;
      watch?.onAnswer(answer);
      metrics.opened("ok");
      return stream;
    } catch (error) {
      const failure = toCulvertError(error);
      metrics.opened(failure.code);
      const isUseful = failure.code === "limited" || failure.code === "forbidden" || failure.refusedBy === "agent";
      if (failure.code !== "caller_gone" && !isUseful) onUseless(this.#cluster, this.location);
      throw failure;
    }
  }

  /** The dial itself goes on: others may wait for it, too. */
  #inTime<T>(work: Promise<T>, cancellation: Cancellation<CulvertError>, timeoutMs: number): Promise<T> {
    return new Promise((resolve, reject) => {
      const onCancelled = () => reject(cancellation.reason);
      const sentence = `server "${this.serverId}" was not reached in time from server "${this.#deps.links.ownId}": check its process and the path between them`;
      const timer = setTimeout(() => reject(new CulvertError("peer_lost", sentence)), timeoutMs);
      if (cancellation.reason !== undefined) onCancelled();
      cancellation.onCancelled = onCancelled;
      work.then(resolve, reject).finally(() => {
        clearTimeout(timer);
        if (cancellation.onCancelled === onCancelled) cancellation.onCancelled = undefined;
      });
    });
  }
}
