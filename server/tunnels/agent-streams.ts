import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

/** Streams that an agent may open before its tunnel ends: each takes the event loop 30 µs. */
const OPENED = { burst: 100, perSecond: 10 };

/** The streams that one agent opens. No kind of them is known yet, so each is reset. */
export class AgentStreams {
  readonly #opened = new TokenBucket(OPENED);

  /** Throws a violation of the session if the agent opens streams too often. */
  refuse(stream: Stream): void {
    stream.on("error", ignore);
    if (this.#opened.take(1) > 0) throw new YamuxError("flood", "the agent opens streams again and again");
    stream.reset();
  }
}

function ignore(): void {}
