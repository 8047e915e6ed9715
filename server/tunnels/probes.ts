import { randomBytes } from "node:crypto";
import { Duplex, Transform } from "node:stream";
import { compact } from "../../shared/basics/bytes.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { seconds } from "../../shared/basics/text.ts";
import { formatSize } from "../../shared/config/values.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { type SpliceOptions, splice } from "../../shared/relay/splice.ts";
import type { SpliceAccount } from "../../shared/relay/splice-memory.ts";
import {
  encodeProbeBegun,
  encodeProbeRefusal,
  MAX_PROBE_MS,
  type ProbeMode,
  parseProbe,
  receiveHead,
} from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

/** A few more than one, so that whoever is one too many is told why. */
const MAX_STREAMS = 4;
const BLOCK_BYTES = 64 * 1024;
/** What a source gives in one turn of the loop: no server's turns are so long that they bound what is measured. */
const TURN_BYTES = 1024 * 1024;
/** Of all agents of a cluster at a time: they pour as fast as the path takes it, and measure each other. */
const MAX_OF_CLUSTER = 2;
/** When to come again, ms: a measurement takes some seconds. */
const RETRY_MS = 3_000;
/**
 * What the probes of a cluster move in an hour: a dozen measurements of a line of 1 Gbit/s, in both directions for ten
 * seconds. Nobody pays for a probe's bytes but the server, so that an agent could have it pour without end.
 */
const HOURLY_BYTES = 32 * 1024 ** 3;
const HOUR_S = 3_600;

/** The probes of one cluster. */
export class ProbeRoom {
  /** As of its connections, beside which they go: each byte counts, and may have to rest. */
  paceOfConnections: SpliceOptions["pace"];
  readonly #hourly: TokenBucket;
  #inside = 0;

  constructor(hourlyBytes = HOURLY_BYTES) {
    this.#hourly = new TokenBucket({ burst: hourlyBytes, perSecond: hourlyBytes / HOUR_S });
  }

  /**
   * For how long a probe rests after so many bytes, ms. The hourly budget makes none rest, which would falsify what is
   * measured: it may be overdrawn, and the next probe waits until it is repaid.
   */
  readonly pace = (bytes: number): number => {
    this.#hourly.charge(bytes);
    return this.paceOfConnections?.(bytes) ?? 0;
  };

  /** One more, until the function is called that this returns; throws `limited`. */
  enter(): () => void {
    const retryAfterMs = this.#hourly.charge(0);
    if (retryAfterMs > 0) {
      const size = formatSize(this.#hourly.burst);
      const sentence = `the measurements of this cluster have moved ${size} within an hour: try again in ${seconds(retryAfterMs)}`;
      throw new CulvertError("limited", sentence, { retryAfterMs });
    }
    if (this.#inside >= MAX_OF_CLUSTER) {
      const sentence = `${this.#inside} other agents of this cluster measure their way now: try again in ${RETRY_MS / 1_000} s`;
      throw new CulvertError("limited", sentence, { retryAfterMs: RETRY_MS });
    }
    this.#inside++;
    return () => {
      this.#inside--;
    };
  }
}

/** The streams that an agent opens: probes, one at a time, each over within `maxMs` whatever the agent does. */
export class Probes {
  readonly #room: ProbeRoom;
  readonly #memory: SpliceAccount;
  readonly #maxMs: number;
  #streams = 0;
  #answered: Stream | undefined;

  /** `memory`: what the agent's cluster may hold. */
  constructor(room: ProbeRoom, memory: SpliceAccount, maxMs = MAX_PROBE_MS) {
    this.#room = room;
    this.#memory = memory;
    this.#maxMs = maxMs;
  }

  take(stream: Stream): void {
    stream.on("error", ignore);
    if (this.#streams >= MAX_STREAMS) {
      stream.reset();
      return;
    }
    this.#streams++;
    const timer = setTimeout(() => stream.reset(), this.#maxMs).unref();
    stream.once("close", () => {
      clearTimeout(timer);
      this.#streams--;
      if (this.#answered === stream) this.#answered = undefined;
    });
    receiveHead(
      stream,
      (json) => this.#begin(stream, json),
      () => stream.reset(),
    );
  }

  #begin(stream: Stream, json: Buffer): void {
    try {
      const mode = parseProbe(json);
      if (this.#answered?.destroyed === false) {
        throw new CulvertError("limited", "another probe of this agent is under way: try again", {
          retryAfterMs: RETRY_MS,
        });
      }
      stream.once("close", this.#room.enter());
      this.#answered = stream;
      stream.write(encodeProbeBegun(Date.now()));
      void splice(stream, FAR_ENDS[mode](), { pace: this.#room.pace, memory: this.#memory });
    } catch (error) {
      stream.end(encodeProbeRefusal(toCulvertError(error)));
      stream.resume(); // so that its end is seen
    }
  }
}

/** Where a probe leads to, as a connection leads to its target. */
const FAR_ENDS: Readonly<Record<ProbeMode, () => Duplex>> = { echo, source, sink };

/** What comes back is kept until the agent acknowledges it; here nothing waits, for it may be in pieces of one byte. */
function echo(): Duplex {
  const transform = (chunk: Buffer, _encoding: BufferEncoding, done: (error: null, data: Buffer) => void): void =>
    done(null, compact(chunk));
  return new Transform({ readableHighWaterMark: 0, transform });
}

/** Random bytes: what compresses on the way would be no measure of it. */
function source(): Duplex {
  const block = randomBytes(BLOCK_BYTES);
  let isOver = false;
  return new Duplex({
    readableHighWaterMark: TURN_BYTES,
    // Then the loop has its turn: one that never runs dry would never let the end of the other side be seen.
    read() {
      setImmediate(() => {
        for (let given = 0; given < TURN_BYTES && !isOver && !this.destroyed; given += BLOCK_BYTES) {
          if (!this.push(block)) return;
        }
      });
    },
    write: (_chunk, _encoding, done) => done(),
    final(done) {
      isOver = true;
      this.push(null);
      done();
    },
  });
}

function sink(): Duplex {
  return new Duplex({
    read() {},
    write: (_chunk, _encoding, done) => done(),
    final(done) {
      this.push(null);
      done();
    },
  });
}

function ignore(): void {}
