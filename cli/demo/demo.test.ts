import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { until } from "../../shared/basics/testing/wait.ts";
import { folderOf } from "../../shared/documents/testing/files.ts";
import { RUN_SOURCES, source } from "../../shared/runtime/testing/project.ts";

const MAIN = fileURLToPath(source("../main.ts", import.meta.url));

/** `culvert demo` with a temporary folder of its own, and what it has said. */
function demo(t: TestContext, ...args: string[]) {
  const tmp = folderOf(t);
  const start = () => {
    // A process group of its own, as in a terminal's.
    const child = spawn(process.execPath, [...RUN_SOURCES, MAIN, "demo", ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, TMPDIR: tmp },
      detached: true,
    });
    const said = { text: "" };
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said.text += String(chunk)));
    const ended = once(child, "close") as Promise<[number | null, NodeJS.Signals | null]>;
    t.after(() => killGroup(child));
    return { child, said, ended };
  };
  const folders = async () => (await readdir(tmp)).filter((name) => name.startsWith("culvert-demo-"));
  return { tmp, start, folders };
}

function killGroup(child: ChildProcess): void {
  try {
    process.kill(-(child.pid ?? 0), "SIGKILL");
  } catch {
    // It is gone.
  }
}

/** Alive and not just waiting for its parent to ask how it ended. */
function runs(pid: number): boolean {
  const path = `/proc/${pid}/stat`;
  return existsSync(path) && !/\) Z /.test(readFileSync(path, "utf8"));
}

function pidOf(name: string, text: string): number {
  return Number(new RegExp(`${name}, process (\\d+)`).exec(text)?.[1]);
}

test("demo --once shows a CONNECT with its times, without colours for a file, and leaves nothing", async (t) => {
  const busy = net.createServer().listen(8091, "127.0.0.1");
  const listening = await Promise.race([once(busy, "listening"), once(busy, "error")]);
  t.after(() => busy.close());
  const { start, folders } = demo(t, "--once");
  const { said, ended } = start();
  const [code] = await ended;
  assert.equal(code, 0, said.text);
  assert.match(said.text, /\d ms {2}CONNECT localhost:\d+ to server, agent, target: HTTP\/1\.1 200 /);
  assert.match(said.text, /GET \/from-the-demo: HTTP\/1\.1 200 OK: "Hello from the other side/);
  // Somebody else may have had the port before this test: then it is taken just as well.
  assert.ok(Array.isArray(listening));
  assert.match(said.text, /Port 8091 is taken. The port of agents is \d+/);
  assert.equal(said.text.includes("\x1b"), false);
  assert.deepEqual(await folders(), []);
});

test("a demo that is interrupted before it has shown anything says so by its exit code, and leaves nothing", async (t) => {
  const { start, folders } = demo(t, "--once");
  const { child, said, ended } = start();
  await until(
    () => said.text.includes("throwaway certificates"),
    () => said.text,
  );
  child.kill("SIGTERM");
  assert.deepEqual(await ended, [143, null], said.text);
  assert.match(said.text, /\nEnding\.\n$/);
  assert.deepEqual(await folders(), []);
});

test("signals that come while a demo ends do not change how it ends", async (t) => {
  const { start } = demo(t, "--once");
  const { child, said, ended } = start();
  await until(
    () => said.text.includes("GET /from-the-demo"),
    () => said.text,
  );
  while (child.exitCode === null && child.signalCode === null) {
    child.kill("SIGINT");
    await new Promise((resolve) => setImmediate(resolve));
  }
  const [, signal] = await ended;
  assert.equal(signal, null, said.text);
});

test("a demo writes over nothing, and says why a folder will not do", async (t) => {
  const { tmp } = demo(t);
  await writeFile(join(tmp, "target.key"), "precious");
  for (const [dir, pattern] of [
    [tmp, /already has target\.key, and nothing was written/],
    [join(tmp, "target.key"), /nothing can be written into .*target\.key: a file is in the way/],
  ] as const) {
    const { start } = demo(t, "--once", "--dir", dir);
    const { said, ended } = start();
    assert.deepEqual(await ended, [2, null], said.text);
    assert.match(said.text, pattern);
  }
  assert.deepEqual(await readdir(tmp), ["target.key"]);
  assert.equal(await readFile(join(tmp, "target.key"), "utf8"), "precious");
});

test("a demo stays up, its curl line works when pasted, and Ctrl-C ends it with all of its processes", async (t) => {
  const { start, folders } = demo(t);
  const { child, said, ended } = start();
  await until(
    () => said.text.includes("Ctrl-C"),
    () => said.text,
  );
  const line = /^ {2}(curl -x (?:.*\\\n)+.*https:\/\/localhost:\d+\/)$/m.exec(said.text)?.[1] ?? "";
  const curl = spawn("bash", ["-c", line], { stdio: ["ignore", "pipe", "ignore"] });
  let answer = "";
  curl.stdout.on("data", (chunk) => (answer += String(chunk)));
  await once(curl, "close");
  assert.match(answer, /^Hello from the other side of the culvert\.\nYou asked for GET "\/"/);
  const told = () => said.text.match(/^ {2}server .* connection closed .*$/gm) ?? [];
  await until(
    () => told().length === 2,
    () => said.text,
  );
  assert.match(told()[0] ?? "", /outcome=ok dialMs=/, "no reason: it has ended cleanly");

  const pids = ["server", "agent", "target"].map((name) => pidOf(name, said.text));
  assert.ok(pids.every(runs));
  process.kill(-(child.pid ?? 0), "SIGINT");
  // npm passes the terminal's signal on, a second time.
  child.kill("SIGINT");
  assert.deepEqual(await ended, [0, null], said.text);
  assert.deepEqual(pids.filter(runs), []);
  assert.deepEqual(await folders(), []);
});

test("a second Ctrl-C does not wait for what hangs", async (t) => {
  const { start, folders } = demo(t);
  const { child, said, ended } = start();
  await until(
    () => said.text.includes("Ctrl-C"),
    () => said.text,
  );
  const server = pidOf("server", said.text);
  process.kill(server, "SIGSTOP");
  const again = setInterval(() => child.kill("SIGINT"), 100);
  t.after(() => clearInterval(again));
  assert.deepEqual(await ended, [130, null], said.text);
  assert.deepEqual(await folders(), []);
  await until(
    () => !runs(server),
    () => `the server, process ${server}, is killed`,
  );
});

test("a demo whose output is a full disk or a closed pipe does not stay up, and leaves nothing", async (t) => {
  for (const [output, code] of [
    [">/dev/full", 1],
    ["| head -n 1", 0],
  ] as const) {
    const { tmp, folders } = demo(t);
    const line = `"${process.execPath}" ${RUN_SOURCES.join(" ")} "${MAIN}" demo ${output}; exit "\${PIPESTATUS[0]}"`;
    const child = spawn("bash", ["-c", line], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, TMPDIR: tmp },
      detached: true,
    });
    t.after(() => killGroup(child));
    let complaint = "";
    child.stderr.on("data", (chunk) => (complaint += String(chunk)));
    let end: unknown[] | undefined;
    child.once("close", (...how) => (end = how));
    await until(
      () => end !== undefined,
      () => `the end of demo ${output}`,
    );
    assert.deepEqual(end, [code, null], complaint);
    assert.match(complaint, code === 0 ? /^$/ : /^culvert: cannot write to stdout: ENOSPC.*\n$/);
    assert.deepEqual(await folders(), []);
  }
});
