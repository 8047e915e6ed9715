import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { ConfigError } from "../config/options.ts";
import { createLogger } from "./logger.ts";
import { type Closable, type Host, run } from "./run.ts";
import { RUN_SOURCES, source } from "./testing/project.ts";

/** A process that only exists in the test: its signals, its clock, its exit code. */
function world(closable: Partial<Closable> = {}) {
  const listeners = new Map<string, (...args: never[]) => void>();
  const lines: { level: string; msg: string; err?: { stack: string } }[] = [];
  const exits: number[] = [];
  const complaints: string[] = [];
  const reloads: number[] = [];
  let now = 0;
  const host: Host = {
    on: (event, listener) => listeners.set(event, listener),
    exit: (code) => exits.push(code),
    now: () => now,
  };
  const log = createLogger({
    level: "info",
    format: "json",
    name: "test",
    destination: { write: (line) => void lines.push(JSON.parse(line)) },
  });
  const running: Closable = { close: async () => {}, destroy: () => {}, ...closable };
  return {
    lines,
    exits,
    complaints,
    reloads,
    run: (start: () => Promise<Closable> = async () => running) =>
      run(start, { log, reload: () => reloads.push(1), reportFailure: (line) => complaints.push(line) }, host),
    emit: (event: string, ...args: unknown[]) => listeners.get(event)?.(...(args as never[])),
    advance: (ms: number) => (now += ms),
    settled: () => new Promise((resolve) => setImmediate(resolve)),
  };
}

test("the first signal closes, and the process ends with 0 when that is done", async () => {
  let finish = (): void => {};
  const one = world({ close: () => new Promise((resolve) => (finish = resolve)) });
  await one.run();
  one.emit("SIGTERM");
  await one.settled();
  assert.deepEqual(one.exits, []);
  finish();
  await one.settled();
  assert.deepEqual(one.exits, [0]);
});

test("a second signal within a second is the same wish; a later one destroys", async () => {
  const destroyed: string[] = [];
  const one = world({ close: () => new Promise(() => {}), destroy: (reason) => destroyed.push(reason.message) });
  await one.run();
  one.emit("SIGINT");
  one.advance(999);
  one.emit("SIGTERM");
  await one.settled();
  assert.deepEqual([destroyed, one.exits], [[], []]);
  one.advance(1);
  one.emit("SIGINT");
  assert.deepEqual([destroyed, one.exits], [["ended by a second SIGINT"], [130]]);
});

test("a signal in the middle of the start closes what was started", async () => {
  let started = (_closable: Closable): void => {};
  let closed = 0;
  const one = world();
  const running = one.run(() => new Promise((resolve) => (started = resolve)));
  one.emit("SIGTERM");
  started({ close: async () => void closed++, destroy: () => {} });
  await running;
  assert.equal(closed, 1);
  assert.deepEqual(one.exits, [0]);
});

test("SIGHUP reads files again, says so in one line and ends nothing", async () => {
  const one = world();
  await one.run();
  one.emit("SIGHUP");
  one.emit("SIGHUP");
  await one.settled();
  assert.deepEqual([one.reloads.length, one.exits], [2, []]);
  assert.deepEqual(
    one.lines.map(({ msg }) => msg),
    ["reading all files again", "reading all files again"],
  );
});

test("a close that fails is an error with its stack, and not 0", async () => {
  const one = world({ close: () => Promise.reject(new Error("stuck")) });
  await one.run();
  one.emit("SIGTERM");
  await one.settled();
  assert.deepEqual(one.exits, [1]);
  assert.match(one.lines.at(-1)?.err?.stack ?? "", /stuck\n +at/);
});

test("a start that fails ends with 1 and a stack; a wrong configuration with 2 and sentences only", async () => {
  const broken = world();
  await broken.run(() => Promise.reject(new Error("boom")));
  assert.deepEqual(broken.exits, [1]);
  assert.match(broken.lines[0]?.err?.stack ?? "", /boom\n +at/);

  const wrong = world();
  await wrong.run(() => Promise.reject(new ConfigError(["Port in use.", "No key."])));
  assert.deepEqual(wrong.exits, [2]);
  assert.deepEqual([wrong.complaints, wrong.lines], [["Port in use.", "No key."], []]);

  const tight = world();
  await tight.run(() => Promise.reject(Object.assign(new Error("too many open files"), { code: "EMFILE" })));
  assert.deepEqual([tight.exits, tight.lines], [[1], []]);
  assert.match(
    tight.complaints.join(),
    /^this process may have \d+ files open, which is too few to start with this configuration: raise the limit/,
  );

  // A file that could not be opened for that is not wrong.
  const unread = world();
  const full = Object.assign(new Error("file table overflow"), { code: "ENFILE" });
  await unread.run(() => Promise.reject(new ConfigError(["The key cannot be read."], { cause: full })));
  assert.deepEqual([unread.exits, unread.lines, unread.complaints.length], [[1], [], 1]);
  assert.match(
    unread.complaints.join(),
    /^this machine has as many files open as it may, .*: raise its limit \(sysctl/,
  );
});

test("an uncaught error or rejection ends the process with its stack in the log", async () => {
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    const one = world();
    await one.run();
    one.emit(event, new Error("a bug"));
    assert.deepEqual(one.exits, [1]);
    assert.match(one.lines.at(-1)?.err?.stack ?? "", /a bug\n +at/);
  }
});

test("a real process ends within a second of SIGTERM, although a timer and a socket are open", async () => {
  const file = (name: `${string}.ts`) => JSON.stringify(source(name, import.meta.url).href);
  const script = `
    import { createServer } from "node:net";
    import { run } from ${file("run.ts")};
    import { createLogger } from ${file("logger.ts")};
    const log = createLogger({ level: "info", format: "json", name: "child" });
    await run(async () => {
      createServer().listen(0);
      setInterval(() => {}, 1000);
      return { close: async () => {}, destroy: () => {} };
    }, { log, reload: () => {}, reportFailure: () => {} });
    log.info("started");`;
  const child = spawn(process.execPath, [...RUN_SOURCES, "--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  for await (const chunk of child.stdout) {
    output += String(chunk);
    if (output.includes("started")) break;
  }
  child.kill("SIGTERM");
  const [code] = await once(child, "exit");
  assert.equal(code, 0);
});
