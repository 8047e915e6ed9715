import { serve } from "../child.ts";
import type { DialSpec } from "../dial-spec.ts";
import { open } from "../load-socket.ts";
import { percentile } from "../stats.ts";

/**
 * A bystander: one stream, a message each 10 ms whether or not the last has come back, so that no stall is left out.
 */
const PACE_MS = 10;
const MESSAGE = Buffer.alloc(64, "p");

const sent: number[] = [];
let times: number[] = [];
let broken: string | undefined;
let stop: () => void = () => {};

function start({ dial }: { dial: DialSpec }): Promise<object> {
  return new Promise((resolve, reject) => {
    let missing = MESSAGE.length;
    const onBytes = (_: unknown, length: number) => {
      for (missing -= length; missing <= 0; missing += MESSAGE.length) {
        times.push(performance.now() - (sent.shift() ?? Number.NaN));
      }
    };
    const onFail = (reason: string) => {
      broken ??= reason;
      reject(new Error(reason));
    };
    const onOpen = (socket: { write(chunk: Buffer): void; destroy(): void }) => {
      const timer = setInterval(() => {
        sent.push(performance.now());
        socket.write(MESSAGE);
      }, PACE_MS);
      stop = () => {
        clearInterval(timer);
        socket.destroy();
      };
      resolve({});
    };
    open(dial, { onOpen, onBytes, onFail }, Buffer.alloc(4096));
  });
}

export interface PulseResult {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly samples: number;
}

/** The echoes since it was last asked; what has not come back yet counts with the time it has waited. */
function take(_: object): PulseResult {
  if (broken !== undefined) throw new Error(`the bystander's stream ended: ${broken}`);
  const now = performance.now();
  const taken = [...times, ...sent.map((at) => now - at)];
  times = [];
  const maxMs = taken.reduce((most, ms) => Math.max(most, ms), 0);
  return { p50Ms: percentile(taken, 50), p99Ms: percentile(taken, 99), maxMs, samples: taken.length };
}

const methods = {
  start,
  take,
  stop: (_: object) => {
    stop();
    return {};
  },
};

export type PulseMethods = typeof methods;
serve(methods);
