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
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

/** More than one, so that a probe that is one too many gets an answer. */
const MAX_STREAMS = 4;
/**
 * Streams that an agent may open, over which its tunnel ends: the doctor opens ten or so, and each takes the event loop
 * 30 µs.
 */
const OPENED = { burst: 100, perSecond: 10 };
const BLOCK_BYTES = 64 * 1024;
/** Bytes that a source gives in one turn of the loop: enough that the turns do not limit the measurement. */
const TURN_BYTES = 1024 * 1024;
/** Concurrent probes of a cluster: each sends as fast as the path allows, and disturbs the others. */
const MAX_OF_CLUSTER = 2;
/** When a refused probe may be tried again, ms: a measurement takes some seconds. */
const RETRY_MS = 3_000;
/**
 * Bytes that the probes of a cluster may move in an hour: a dozen measurements of a line of 1 Gbit/s, in both
 * directions for ten seconds. Without a bound an agent could make the server send forever.
 */
const HOURLY_BYTES = 32 * 1024 ** 3;
const HOUR_S = 3_600;

/** The probes of one cluster. */
export class ProbeRoom {
  /** The pace of the cluster's connections, which holds for its probes, too. */
  paceOfConnections: SpliceOptions["pace"];
  readonly #hourly: TokenBucket;
  #inside = 0;

  constructor(hourlyBytes = HOURLY_BYTES) {
    this.#hourly = new TokenBucket({ burst: hourlyBytes, perSecond: hourlyBytes / HOUR_S });
  }

  /**
   * How long a probe pauses after `bytes`, ms. The hourly budget pauses none, which would falsify the measurement: it
   * may be overdrawn, and the next probe waits until it is repaid.
   */
  readonly pace = (bytes: number): number => {
    this.#hourly.charge(bytes);
    return this.paceOfConnections?.(bytes) ?? 0;
  };

  /** Begins a probe; the returned function ends it. Throws `limited`. */
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

/** The streams that an agent opens: probes, one at a time, each of which ends within `maxMs`. */
export class Probes {
  readonly #room: ProbeRoom;
  readonly #memory: SpliceAccount;
  readonly #maxMs: number;
  readonly #opened = new TokenBucket(OPENED);
  #streams = 0;
  #answered: Stream | undefined;

  /** `memory`: the account of the agent's cluster. */
  constructor(room: ProbeRoom, memory: SpliceAccount, maxMs = MAX_PROBE_MS) {
    this.#room = room;
    this.#memory = memory;
    this.#maxMs = maxMs;
  }

  /** Throws a violation of the session if the agent opens streams too often. */
  take(stream: Stream): void {
    stream.on("error", ignore);
    if (this.#opened.take(1) > 0) throw new YamuxError("flood", "the agent opens streams again and again");
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

/** The far end of a probe, in place of a target. */
const FAR_ENDS: Readonly<Record<ProbeMode, () => Duplex>> = { echo, source, sink };

/** Buffers nothing, since pieces may be of one byte: the stream keeps what comes back until it is acknowledged. */
function echo(): Duplex {
  const transform = (chunk: Buffer, _encoding: BufferEncoding, done: (error: null, data: Buffer) => void): void =>
    done(null, compact(chunk));
  return new Transform({ readableHighWaterMark: 0, transform });
}

/** Random bytes: others could be compressed on the path. */
function source(): Duplex {
  const block = randomBytes(BLOCK_BYTES);
  let isOver = false;
  return new Duplex({
    readableHighWaterMark: TURN_BYTES,
    // In a later turn of the loop: otherwise the end of the other side would never be noticed.
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
