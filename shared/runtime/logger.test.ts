import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { test } from "node:test";
import { createLogger, loadPretty, readableLine, wholeLines } from "./logger.ts";
import { RUN_SOURCES, source } from "./testing/project.ts";

function capture() {
  const lines: string[] = [];
  return { lines, destination: { write: (line: string) => void lines.push(line) } };
}

test("a line is JSON with an ISO time, the level as a word and the name", () => {
  const { lines, destination } = capture();
  const log = createLogger({ level: "info", format: "json", name: "server", destination });
  log.debug("not this one");
  log.info({ cluster: "blue" }, "hello");
  log.error({ err: new Error("bad") }, "oops");
  assert.equal(lines.length, 2);
  const [first, second] = lines.map((line) => JSON.parse(line));
  assert.match(first.time, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  assert.deepEqual([first.level, first.name, first.cluster, first.msg], ["info", "server", "blue", "hello"]);
  assert.match(second.err.stack, /Error: bad\n +at /);
});

test("the pretty format is for people and written at once", async () => {
  await loadPretty();
  const { lines, destination } = capture();
  const log = createLogger({ level: "info", format: "pretty", name: "server", destination });
  log.warn({ port: 1 }, "look here");
  assert.match(lines.join(""), /\] WARN \(server\): look here {2}port=1\n$/);
  assert.doesNotMatch(lines.join(""), /"msg"/);
});

test("auto is JSON where stdout is no terminal", () => {
  const { lines, destination } = capture();
  createLogger({ level: "info", format: "auto", name: "x", destination }).info("hello");
  assert.equal(JSON.parse(lines[0] ?? "").msg, "hello");
});

test("a log that cannot be written loses lines, says so once if it can, and the process goes on", () => {
  const script = `
    import { createLogger } from ${JSON.stringify(source("./logger.ts", import.meta.url).href)};
    const log = createLogger({ level: "info", format: "json", name: "x" });
    log.info("lost");
    setImmediate(() => setImmediate(() => {
      log.info("lost, too");
      setImmediate(() => process.exit(42));
    }));`;
  const full = openSync("/dev/full", "w");
  const [said, unsaid] = (["pipe", full] as const).map((stderr) =>
    spawnSync(process.execPath, [...RUN_SOURCES, "--input-type=module", "-e", script], {
      stdio: ["ignore", full, stderr],
      encoding: "utf8",
    }),
  );
  closeSync(full);
  const sentence = "culvert: the log cannot be written to stdout, and lines of it are lost: ENOSPC";
  assert.deepEqual([said?.status, said?.stderr.split("\n").length, said?.stderr.startsWith(sentence)], [42, 2, true]);
  assert.equal(unsaid?.status, 42);
});

test("a record is one line: the message, then each field that says something", () => {
  const record = {
    level: "info",
    time: "2026-01-01T00:00:00Z",
    name: "culvert-server",
    msg: "connection closed",
    cluster: "blue",
    agent: undefined,
    caller: "",
    dialMs: 1.5,
    bytesUp: 0,
    sni: ["a", "b"],
    reason: 'the "peer" has gone',
  };
  assert.equal(
    readableLine(record),
    String.raw`connection closed  cluster=blue dialMs=1.5 bytesUp=0 sni=["a","b"] reason="the \"peer\" has gone"`,
  );
});

test("a message without fields stands alone", () => {
  assert.equal(readableLine({ level: "info", name: "x", msg: "closed" }), "closed");
});

test("an error shows its stack on lines of its own", () => {
  const err = { type: "Error", message: "bad", stack: "Error: bad\n    at here" };
  assert.equal(readableLine({ msg: "oops", port: 1, err }), "oops  port=1\nError: bad\n    at here");
});

test("lines are written in pieces that a pipe takes whole, unless one alone is longer", () => {
  const [short, long] = [`${"a".repeat(999)}\n`, `${"b".repeat(5_000)}\n`];
  const shown = (...lines: readonly string[]) => String(wholeLines(Buffer.from(lines.join(""))));
  assert.equal(shown(short, short), short + short);
  assert.equal(shown(short, short, short, short, short), short.repeat(4));
  assert.equal(shown(short, long), short);
  assert.equal(shown(long, short), long + short);
});
