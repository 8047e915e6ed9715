import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import type { ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { mock, test } from "node:test";
import { AgentWindow } from "./agent-window.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

/** A session whose pings are answered by `answer`, and its stream. */
class Line {
  size = 0;
  isPaused = false;
  answer: ((ms: number) => void) | undefined;
  readonly window: AgentWindow;

  constructor() {
    const session = Object.assign(new EventEmitter(), {
      destroyed: false,
      pendingSettingsAck: false,
      settings: ({ initialWindowSize }: { initialWindowSize: number }) => {
        this.size = initialWindowSize;
      },
      setLocalWindowSize: () => {},
      ping: (done: (error: Error | null, ms: number) => void) => {
        this.answer = (ms) => done(null, ms);
      },
    });
    const stream = { pause: () => this.#setPaused(true), resume: () => this.#setPaused(false) };
    this.window = new AgentWindow(session as unknown as ServerHttp2Session, stream as unknown as ServerHttp2Stream);
  }

  #setPaused(isPaused: boolean): void {
    this.isPaused = isPaused;
  }

  /** A caller leaves 32 MiB of 64 MiB, having stood still for `idleMs`. Returns how long the agent pauses, ms. */
  pauseFor({ idleMs = 0, held = 32 * MIB } = {}): number {
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      this.window.onLeft({ held, lastProgressAt: performance.now() - idleMs }, 64 * MIB);
      let ms = 0;
      for (; this.isPaused && ms < 1_000; ms++) mock.timers.tick(1);
      return ms;
    } finally {
      mock.timers.reset();
    }
  }
}

/** A line on which so many bytes have come since the last pause. */
function lineWith(bytes: number): Line {
  const line = new Line();
  line.window.onReceived(bytes);
  return line;
}

test("the agent is slowed down for a caller that moves: the more it has left, the longer", () => {
  assert.equal(lineWith(256 * KIB).pauseFor(), 25);
  assert.equal(lineWith(256 * KIB).pauseFor({ held: 8 * MIB }), 6);
  assert.equal(lineWith(256 * KIB).pauseFor({ held: 100 * MIB }), 50);
});

test("it is not for little, nor again before 256 KiB have come", () => {
  assert.equal(lineWith(256 * KIB).pauseFor({ held: MIB - 1 }), 0);
  const line = lineWith(256 * KIB);
  assert.equal(line.pauseFor(), 25);
  line.window.onReceived(255 * KIB);
  assert.equal(line.pauseFor(), 0);
  line.window.onReceived(KIB);
  assert.equal(line.pauseFor(), 25);
});

test("a caller that has stopped slows nobody down", () => {
  assert.equal(lineWith(256 * KIB).pauseFor({ idleMs: 2_100 }), 0);
  assert.equal(lineWith(256 * KIB).pauseFor({ idleMs: 1_500 }), 25);
});

test("the window grows to twice what the path takes, and shrinks before the first pause", () => {
  const line = new Line();
  assert.equal(line.size, 256 * KIB);
  line.window.onReceived(16 * KIB);
  line.window.onReceived(184 * KIB);
  line.answer?.(10);
  assert.equal(line.size, 400 * KIB);
  line.window.onReceived(400 * KIB);
  line.answer?.(15);
  assert.equal(line.size, Math.floor((2 * 400 * KIB * 10) / 15), "twice the speed, and the least round trip");
  const before = line.size;
  line.window.onReceived(before);
  line.answer?.(1_000);
  assert.equal(line.size, before, "what waits in a queue is not what the path takes");
  assert.equal(line.pauseFor(), 0);
  assert.ok(line.size < before);
  line.window.onReceived(before);
  assert.equal(line.pauseFor(), 0, "that was on its way");
  line.window.onReceived(256 * KIB);
  assert.equal(line.pauseFor(), 0, "it shrinks once more");
  assert.equal(line.size, 256 * KIB);
  line.window.onReceived(before + 256 * KIB);
  assert.equal(line.pauseFor(), 25);
});
