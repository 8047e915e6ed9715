import type { Socket } from "node:net";
import { serve } from "./child.ts";
import type { DialSpec, Flow } from "./dial-spec.ts";
import { open } from "./load-socket.ts";
import { percentile } from "./stats.ts";

/** The load generator: a process of its own, so that what it costs is nobody else's. */
const HOT = Buffer.alloc(262_144, "culvert");
const COLD = Buffer.alloc(262_144);
const held = new Set<Socket>();
let received = 0;

interface BulkParams {
  readonly dial: DialSpec;
  readonly flow: Flow;
  readonly streams: number;
}

/** Opens the streams and keeps them busy until `release`. */
async function bulk({ dial, flow, streams }: BulkParams): Promise<object> {
  const onBytes = (_: Socket, length: number) => {
    received += length;
  };
  await Promise.all(Array.from({ length: streams }, () => hold(dial, onBytes, flow === "up" ? pump : ask)));
  return {};
}

/** Keeps its socket's buffer full. */
function pump(socket: Socket): void {
  const write = () => {
    while (!socket.destroyed && socket.write(HOT));
  };
  socket.on("drain", write);
  write();
}

/** The source sends after the first byte. */
function ask(socket: Socket): void {
  socket.write("x");
}

function ignore(): void {}

function hold(dial: DialSpec, onBytes: (socket: Socket, length: number) => void, then: (socket: Socket) => void) {
  return new Promise<void>((resolve, reject) => {
    const onOpen = (socket: Socket) => {
      held.add(socket);
      then(socket);
      resolve();
    };
    open(dial, { onOpen, onBytes, onFail: (reason) => reject(new Error(reason)) }, COLD);
  });
}

interface HoldParams {
  readonly dial: DialSpec;
  readonly count: number;
  /** idle: one byte went to and fro; stalled: never reads; pushing: writes without end. */
  readonly as: "idle" | "stalled" | "pushing";
}

/** Opens `count` streams, 64 at a time, and leaves them. */
async function holdMany({ dial, count, as }: HoldParams): Promise<object> {
  let left = count;
  const worker = async () => {
    while (left-- > 0) {
      if (as === "idle") await touch(dial);
      else if (as === "stalled") await hold(dial, ignore, askAndStall);
      else await hold(dial, ignore, pump);
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
  return { held: held.size };
}

function askAndStall(socket: Socket): void {
  ask(socket);
  socket.pause();
}

function touch(dial: DialSpec): Promise<void> {
  return new Promise((resolve, reject) => {
    const onOpen = (socket: Socket) => {
      held.add(socket);
      socket.write("x");
    };
    open(dial, { onOpen, onBytes: () => resolve(), onFail: (reason) => reject(new Error(reason)) }, COLD);
  });
}

interface RateParams {
  readonly dial: DialSpec;
  readonly inFlight: number;
  readonly seconds: number;
  /** connect: to the 200 and close; echo: one byte to and fro as well. */
  readonly until: "connect" | "echo";
}

interface RateResult {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly failures: number;
  readonly firstFailure: string;
}

/** Connections one after the other in `inFlight` lanes; the first tenth of the time is warm-up. */
function rate({ dial, inFlight, seconds, until }: RateParams): Promise<RateResult> {
  const started = performance.now();
  const from = started + seconds * 100;
  const end = started + seconds * 1000;
  const times: number[] = [];
  let failures = 0;
  let firstFailure = "";
  let lanes = inFlight;
  return new Promise((resolve) => {
    const lane = () => {
      const begun = performance.now();
      if (begun >= end) {
        if (--lanes === 0) {
          const perSecond = times.length / ((end - from) / 1000);
          resolve({ perSecond, p50Ms: percentile(times, 50), p99Ms: percentile(times, 99), failures, firstFailure });
        }
        return;
      }
      const done = (socket: Socket) => {
        const now = performance.now();
        if (now >= from && now < end) times.push(now - begun);
        finished = true;
        socket.destroy();
        lane();
      };
      let finished = false;
      const onOpen = until === "connect" ? done : (socket: Socket) => void socket.write("x");
      const onBytes = (socket: Socket) => {
        if (!finished) done(socket);
      };
      const onFail = (reason: string) => {
        if (finished) return;
        failures++;
        firstFailure ||= reason;
        setImmediate(lane);
      };
      open(dial, { onOpen, onBytes, onFail }, COLD);
    };
    for (let i = 0; i < inFlight; i++) lane();
  });
}

interface EchoParams {
  readonly dial: DialSpec;
  readonly seconds: number;
  readonly paceMs: number;
}

export interface EchoResult {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly p999Ms: number;
  readonly samples: number;
}

/** One stream, 64 bytes to and fro, the next `paceMs` after the last: a person's or a watch's traffic, not a load. */
function echo({ dial, seconds, paceMs }: EchoParams): Promise<EchoResult> {
  const message = Buffer.alloc(64, "e");
  const times: number[] = [];
  const end = performance.now() + seconds * 1000;
  let sentAt = 0;
  let missing = 0;
  return new Promise((resolve, reject) => {
    const send = (socket: Socket) => {
      missing = message.length;
      sentAt = performance.now();
      socket.write(message);
    };
    const onBytes = (socket: Socket, length: number) => {
      missing -= length;
      if (missing > 0) return;
      const now = performance.now();
      times.push(now - sentAt);
      if (now < end) {
        setTimeout(send, paceMs, socket);
        return;
      }
      const counted = times.slice(5); // the first ones warm the path up
      const at = (p: number) => percentile(counted, p);
      resolve({ p50Ms: at(50), p99Ms: at(99), p999Ms: at(99.9), samples: counted.length });
      socket.destroy();
    };
    open(dial, { onOpen: send, onBytes, onFail: (reason) => reject(new Error(reason)) }, Buffer.alloc(4096));
  });
}

interface FirstParams extends Pick<RateParams, "dial" | "until"> {
  readonly deadlineMs: number;
}

/** Tries until a CONNECT succeeds; the time is read here, where it happens. */
async function first({ dial, until, deadlineMs }: FirstParams): Promise<{ epochMs: number }> {
  const deadline = performance.now() + deadlineMs;
  for (;;) {
    const failure = await new Promise<string>((resolve) => {
      const done = (socket: Socket) => {
        resolve("");
        socket.destroy();
      };
      const onOpen = until === "connect" ? done : (socket: Socket) => void socket.write("x");
      open(dial, { onOpen, onBytes: done, onFail: resolve }, COLD);
    });
    if (failure === "") return { epochMs: performance.timeOrigin + performance.now() };
    if (performance.now() > deadline) throw new Error(`no CONNECT within ${deadlineMs} ms: ${failure}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

function release(_: object): object {
  for (const socket of held) socket.destroy();
  held.clear();
  return {};
}

const methods = {
  bulk,
  holdMany,
  rate,
  echo,
  first,
  release,
  received: (_: object) => ({ bytes: received, atMs: performance.now() }),
};

export type LoadMethods = typeof methods;
serve(methods);
