import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import net, { connect, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../shared/config/options.ts";
import { bindUnix, clearPath, type UnixSocketOptions } from "./unix-socket.ts";

async function folder() {
  const path = await mkdtemp(join(tmpdir(), "culvert-uds-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

async function listen(options: UnixSocketOptions, onSocket: (socket: Socket) => void = () => {}) {
  await clearPath(options);
  const server = await bindUnix(options, onSocket);
  return { [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

function options(path: string, more: { mode?: number; deleteExisting?: boolean } = {}) {
  return { path, option: "blue.yaml: callers.uds", mode: 0o660, deleteExisting: true, backlog: 16, ...more };
}

/** A socket file whose process died without a word. */
function leaveStale(path: string): void {
  const script = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  assert.equal(spawnSync(process.execPath, ["-e", script]).signal, "SIGKILL");
}

const refuses = (says: RegExp) => (error: unknown) => error instanceof ConfigError && says.test(error.message);

test("the socket has the mode asked for, takes callers, and its file is gone after close", async () => {
  await using dir = await folder();
  for (const mode of [0o660, 0o600, 0o666]) {
    const path = join(dir.path, "s");
    {
      await using _listening = await listen(options(path, { mode }), (socket) => socket.end("hi"));
      assert.equal((await stat(path)).mode & 0o777, mode);
      const [greeting] = await once(connect(path), "data");
      assert.equal(String(greeting), "hi");
    }
    await assert.rejects(stat(path), { code: "ENOENT" });
  }
});

test("a stale file is replaced, unless that was turned off", async () => {
  await using dir = await folder();
  const path = join(dir.path, "s");
  leaveStale(path);
  await assert.rejects(listen(options(path, { deleteExisting: false })), refuses(/--delete-existing-uds-file/));
  await using _listening = await listen(options(path));
});

test("a socket that a live server owns is left alone", async () => {
  await using dir = await folder();
  const path = join(dir.path, "s");
  await using _first = await listen(options(path), (socket) => socket.on("error", () => {}).end("first"));
  await assert.rejects(listen(options(path)), refuses(/another server listens/));
  const [greeting] = await once(connect(path), "data");
  assert.equal(String(greeting), "first");
});

test("a file that is no socket is never removed", async () => {
  await using dir = await folder();
  const path = join(dir.path, "precious");
  await writeFile(path, "data");
  await assert.rejects(listen(options(path)), refuses(/is not a socket/));
  assert.equal((await stat(path)).size, 4);
});

test("a folder that is missing is said in a sentence", async () => {
  await using dir = await folder();
  await assert.rejects(
    listen(options(join(dir.path, "no", "s"))),
    refuses(/^blue\.yaml: callers\.uds: cannot listen on .*: its folder does not exist, or/),
  );
});

test("the process's umask is as it was", async () => {
  await using dir = await folder();
  const before = process.umask();
  await using _listening = await listen(options(join(dir.path, "s")));
  assert.equal(process.umask(), before);
});

test("whether a server is there cannot be seen without a file descriptor, and nobody is said to be", async (t) => {
  await using dir = await folder();
  const path = join(dir.path, "s");
  leaveStale(path);
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  for (const code of ["EMFILE", "ENFILE"]) {
    t.mock.method(net, "connect", () => new Socket().destroy(Object.assign(new Error(`connect ${code}`), { code })));
    syncBuiltinESMExports();
    await assert.rejects(
      listen(options(path)),
      refuses(/whether a server .* cannot be seen: .* has no file descriptor/),
    );
  }
});
