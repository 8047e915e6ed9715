import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { forkConfined } from "./pac-sandbox.ts";

/**
 * What code would try that has broken out of its sandbox; each throws where it is denied. `beside` is the program's
 * folder.
 */
const ATTEMPTS: Readonly<Record<string, string>> = {
  "read /etc/passwd": 'fs.readFileSync("/etc/passwd")',
  "read what lies beside it": 'fs.readFileSync(beside + "/secret")',
  "list its folder": "fs.readdirSync(beside)",
  "read through a symbolic link": 'fs.readFileSync(beside + "/link")',
  "read the environment of a process": 'fs.readFileSync("/proc/self/environ")',
  "write a file": 'fs.writeFileSync(beside + "/written", "")',
  "write over its own program": 'fs.appendFileSync(process.argv[1], "")',
  "write a heap snapshot": 'v8.writeHeapSnapshot(beside + "/heap")',
  "start a program": 'child.execFileSync("/bin/true")',
  "start Node again": 'child.execFileSync(process.execPath, ["--version"])',
  "open the inspector": "inspector.open(0)",
  "reach Node's own bindings": 'process.binding("spawn_sync")',
  "start a thread": 'new worker.Worker("", { eval: true })',
};

const BREAKOUT = `
import child from "node:child_process";
import fs from "node:fs";
import inspector from "node:inspector";
import v8 from "node:v8";
import worker from "node:worker_threads";
const beside = import.meta.dirname;
const attempts = {
  ${Object.entries(ATTEMPTS)
    .map(([name, code]) => `${JSON.stringify(name)}: () => ${code},`)
    .join("\n  ")}
};
const codes = Object.entries(attempts).map(([name, attempt]) => {
  try {
    attempt();
    return [name, "done"];
  } catch (error) {
    return [name, error.code];
  }
});
process.send(Object.fromEntries(codes), () => process.exit());
`;

function everyAttempt(outcome: string): Record<string, string> {
  return Object.fromEntries(Object.keys(ATTEMPTS).map((name) => [name, outcome]));
}

test("code that breaks out of its sandbox can do nothing with files, processes and threads", async (t) => {
  const program = place(t, { "program.mjs": BREAKOUT, secret: "user:password" });
  symlinkSync("secret", join(dirname(program), "link"));
  assert.deepEqual(await said(t, forkConfined(program, [])), everyAttempt("ERR_ACCESS_DENIED"));
  const free = fork(program, { execArgv: [], stdio: ["ignore", "ignore", "ignore", "ipc"] });
  assert.deepEqual(await said(t, free), everyAttempt("done"), "what is denied can be done without the confinement");
});

test("an addon is not loaded", async (t) => {
  const load = 'process.dlopen({ exports: {} }, "/nowhere/addon.node")';
  const program = place(t, {
    "program.mjs": `try { ${load} } catch (error) { process.send({ code: error.code }); }`,
  });
  assert.deepEqual(await said(t, forkConfined(program, [])), { code: "ERR_DLOPEN_DISABLED" });
});

test("names are resolved, and UDP sockets opened", async (t) => {
  const program = place(t, {
    "program.mjs": `
import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import { once } from "node:events";
const socket = createSocket("udp4");
socket.connect(53, "127.0.0.1");
await once(socket, "connect");
process.send({ ...(await lookup("localhost", { family: 4 })), own: socket.address().address });
socket.close();
`,
  });
  assert.deepEqual(await said(t, forkConfined(program, [])), { address: "127.0.0.1", family: 4, own: "127.0.0.1" });
});

test("packages are found that are symbolic links, and those that they depend on", async (t) => {
  const program = place(t, {
    "app/program.mjs": 'import { word } from "one"; process.send({ word });',
    "store/one@1/node_modules/one/package.json": manifest({ dependencies: { two: "1" } }),
    "store/one@1/node_modules/one/index.mjs": 'export { word } from "two";',
    "store/two@1/node_modules/two/package.json": manifest({ optionalDependencies: { none: "1" } }),
    "store/two@1/node_modules/two/index.mjs": 'export const word = "found";',
  });
  const root = dirname(dirname(program));
  mkdirSync(join(root, "app/node_modules"));
  symlinkSync(join(root, "store/one@1/node_modules/one"), join(root, "app/node_modules/one"));
  symlinkSync(join(root, "store/two@1/node_modules/two"), join(root, "store/one@1/node_modules/two"));
  assert.deepEqual(await said(t, forkConfined(program, ["one"])), { word: "found" });
});

test("neither our environment nor our own flags are passed on", async (t) => {
  const program = place(t, {
    "program.mjs": "process.send({ env: Object.keys(process.env), execArgv: process.execArgv })",
  });
  // Who is started with it ends at once.
  process.execArgv.push("--require=/nowhere/module.cjs");
  t.after(() => process.execArgv.pop());
  const { env, execArgv } = await said<{ env: string[]; execArgv: string[] }>(t, forkConfined(program, []));
  assert.deepEqual(env, []);
  assert.deepEqual(
    execArgv.filter((flag) => !/^--((experimental-)?permission|allow-net)$/.test(flag)),
    [`--allow-fs-read=${program}`],
  );
});

/** Files in a folder of their own; the path of the first. */
function place(t: TestContext, files: Readonly<Record<string, string>>): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "culvert-confined-")));
  t.after(() => rmSync(folder, { recursive: true }));
  const paths = Object.entries(files).map(([name, text]) => {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    return path;
  });
  return paths[0] ?? folder;
}

function manifest(fields: object): string {
  return JSON.stringify({ exports: "./index.mjs", ...fields });
}

/** Its first message. */
async function said<T>(t: TestContext, child: ChildProcess): Promise<T> {
  t.after(() => child.kill("SIGKILL"));
  const signal = AbortSignal.timeout(30_000);
  const [message] = await Promise.race([
    once(child, "message", { signal }),
    once(child, "exit", { signal }).then(([code]) => assert.fail(`it ended with ${code} and sent nothing`)),
  ]);
  return message as T;
}
