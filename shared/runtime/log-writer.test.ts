import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { LogWriter } from "./log-writer.ts";

const MIB = 1024 * 1024;

/** A log whose reader takes as many bytes as `room` says, or which fails with a code. */
function world(t: TestContext, perPause = 0) {
  t.mock.timers.enable({ apis: ["setTimeout", "setImmediate"] });
  const state = { room: Number.POSITIVE_INFINITY, fails: "", read: "", writes: 0, faults: [] as string[], now: 0 };
  const writer = new LogWriter({
    output: (bytes) => {
      state.writes++;
      if (state.fails !== "") throw Object.assign(new Error(state.fails), { code: state.fails });
      const taken = Math.min(state.room, bytes.length);
      if (taken === 0) throw Object.assign(new Error("full"), { code: "EAGAIN" });
      state.room -= taken;
      state.read += bytes.toString("utf8", 0, taken);
      return taken;
    },
    lostLine: (lost, reason) => `LOST ${lost}: ${reason}\n`,
    onFault: (reason) => void state.faults.push(reason),
    now: () => state.now,
    pause: (ms) => {
      state.now += ms;
      state.room += perPause;
    },
  });
  const lines = (): string[] => state.read.split("\n").slice(0, -1);
  return { state, writer, lines };
}

test("lines of one turn are one write, in order, and what is left goes out as the process exits", (t) => {
  const { state, writer, lines } = world(t);
  writer.write("one\n");
  writer.write("two\n");
  assert.equal(state.writes, 0);
  t.mock.timers.tick(0);
  assert.deepEqual([lines(), state.writes], [["one", "two"], 1]);
  writer.write("last\n");
  writer.flush();
  assert.deepEqual([lines(), state.writes], [["one", "two", "last"], 2]);
});

test("a log that nobody reads keeps 1 MiB of the newest lines, counts the others, and says so in their place", (t) => {
  const { state, writer, lines } = world(t);
  state.room = 10; // in the middle of the first line
  const line = (index: number): string => `${index} ${"x".repeat(990)}`;
  for (let index = 0; index < 5_000; index++) {
    writer.write(`${line(index)}\n`);
    t.mock.timers.tick(0);
  }
  assert.match(writer.fault ?? "", /^\d+ lines of the log are lost: nobody reads it$/);
  state.room = Number.POSITIVE_INFINITY;
  t.mock.timers.tick(250);
  assert.equal(writer.fault, undefined);
  const [first, notice, ...rest] = lines();
  assert.equal(first, line(0), "the line that was written in part is written to its end");
  const lost = Number(/^LOST (\d+): nobody reads it$/.exec(notice ?? "")?.[1]);
  assert.equal(1 + lost + rest.length, 5_000);
  assert.deepEqual([rest[0], rest.at(-1)], [line(1 + lost), line(4_999)]);
  const kept = rest.join("\n").length;
  assert.ok(kept <= MIB && kept > 0.8 * MIB, `${kept} bytes`);
});

test("lines of one turn that are too many are bounded, too", (t) => {
  const { state, writer, lines } = world(t);
  state.room = 0;
  for (let index = 0; index < 20_000; index++) writer.write(`${"x".repeat(999)}\n`);
  state.room = Number.POSITIVE_INFINITY;
  t.mock.timers.tick(250);
  assert.ok(state.read.length <= 1.1 * MIB, `${state.read.length} bytes`);
  const lost = lines().find((line) => line.startsWith("LOST"));
  assert.equal(lost, `LOST ${20_000 - (lines().length - 1)}: nobody reads it`);
});

test("a reader that is slow loses nothing that has room, and is not asked at each turn", (t) => {
  const { state, writer, lines } = world(t);
  for (let index = 0; index < 2_000; index++) {
    if (index % 10 === 0) state.room = 50;
    writer.write(`line ${index}\n`);
    t.mock.timers.tick(1);
  }
  assert.ok(state.writes < 1_000, `${state.writes} writes`);
  state.room = Number.POSITIVE_INFINITY;
  t.mock.timers.tick(250);
  assert.deepEqual([lines().length, lines().at(-1), writer.fault], [2_000, "line 1999", undefined]);
});

test("readiness is told of lines that wait, before one is lost", (t) => {
  const { state, writer } = world(t);
  state.room = 0;
  writer.write("one\n");
  t.mock.timers.tick(0);
  assert.equal(writer.fault, undefined);
  state.now += 1_000;
  assert.equal(writer.fault, "lines of the log wait: nobody reads it");
});

test("a disk that is full loses lines, and the next one that is written begins on a line of its own", (t) => {
  const { state, writer, lines } = world(t);
  const write = (line: string): void => {
    writer.write(line);
    t.mock.timers.tick(0);
  };
  state.room = 3;
  write("one\n");
  state.fails = "ENOSPC";
  t.mock.timers.tick(10);
  write("two\n");
  assert.deepEqual([state.faults, writer.fault], [["ENOSPC"], "2 lines of the log are lost: ENOSPC"]);
  state.fails = "";
  state.room = Number.POSITIVE_INFINITY;
  write("three\n");
  assert.deepEqual(lines(), ["one", "three", "LOST 2: ENOSPC"]);
  assert.equal(writer.fault, undefined);
});

test("at its end a process waits for a reader that reads, and a second for one that does not", (t) => {
  for (const [perPause, written, waited] of [
    [0, false, 1_000],
    [400, true, 250],
    [1, false, 5_000],
  ] as const) {
    const { state, writer } = world(t, perPause);
    state.room = 0;
    const text = `${"x".repeat(9_999)}\n`;
    writer.write(text);
    writer.flush();
    assert.deepEqual([state.read === text, state.now], [written, waited], `${perPause} bytes each 10 ms`);
    t.mock.timers.reset();
  }
});
