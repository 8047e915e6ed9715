import { serve } from "../child.ts";
import type { DialSpec } from "../dial-spec.ts";
import { open } from "../load-socket.ts";

/**
 * A neighbour whose connections come to nothing, a fixed number a second, whether or not the last ones are answered.
 */
const EVERY_MS = 5;
/** More are not open at once: a flood that runs out of descriptors is none any more. */
const MOST_OPEN = 4_000;
const BUFFER = Buffer.alloc(4_096);

let stop: () => FloodResult = () => ({ perSecond: 0, answers: {} });

export interface FloodResult {
  /** Connections that came to their end. */
  readonly perSecond: number;
  /** How often which end. */
  readonly answers: Readonly<Record<string, number>>;
}

function start({ dial, perSecond }: { dial: DialSpec; perSecond: number }): object {
  const begun = performance.now();
  const answers: Record<string, number> = {};
  let made = 0;
  let ended = 0;
  const one = () => {
    made++;
    const over = (how: string) => {
      ended++;
      answers[how] = (answers[how] ?? 0) + 1;
    };
    open(dial, { onOpen: () => {}, onBytes: () => {}, onFail: (reason) => over(reason.slice(0, 12)) }, BUFFER);
  };
  const timer = setInterval(() => {
    const due = ((performance.now() - begun) / 1_000) * perSecond;
    while (made < due && made - ended < MOST_OPEN) one();
  }, EVERY_MS);
  stop = () => {
    clearInterval(timer);
    return { perSecond: ended / ((performance.now() - begun) / 1_000), answers };
  };
  return {};
}

const methods = { start, stop: (_: object) => stop() };
export type FloodMethods = typeof methods;
serve(methods);
