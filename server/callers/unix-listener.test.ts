import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, stat, unlink, writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import net, { connect, createServer, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import type { ServerOptions } from "../options/options.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import { UnixListener } from "./unix-listener.ts";

interface Line {
  readonly level: string;
  readonly reason?: string;
  readonly msg: string;
}

/** A listener that echoes, on a path in a folder of its own, and checks its file all the time. */
async function listenerAt(options: Partial<ServerOptions> = {}) {
  const folder = await mkdtemp(join(tmpdir(), "culvert-uds-"));
  await mkdir(join(folder, "d"));
  const path = join(folder, "d", "s");
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "test", destination });
  const onSocket = (socket: Socket) => void socket.on("error", () => {}).pipe(socket);
  const context = contextOf({ udsMode: 0o660, deleteExistingUdsFile: true, listenBacklog: 16, ...options }, { log });
  const listener = new UnixListener({ path, option: "blue.yaml: callers.uds", onSocket, checkMs: 5 }, context);
  return {
    ...{ folder, path, lines, listener },
    [Symbol.asyncDispose]: async () => {
      await listener.close();
      await rm(folder, { recursive: true });
    },
  };
}

/** The same, after it has been opened. */
async function listening(options: Partial<ServerOptions> = {}) {
  const it = await listenerAt(options);
  await it.listener.open();
  return it;
}

async function assertEchoes(socket: Socket): Promise<void> {
  socket.write("hello");
  assert.equal(String((await once(socket, "data"))[0]), "hello");
}

async function assertServes(path: string): Promise<void> {
  const socket = connect(path);
  await assertEchoes(socket);
  socket.destroy();
}

/** The listener of another process, which sends its name. */
async function otherOn(path: string) {
  const server = createServer((socket) => socket.on("error", () => {}).end("other"));
  server.listen(path);
  await once(server, "listening");
  return { [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

/** A socket file whose process was killed. */
function leaveStale(path: string): void {
  const script = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  assert.equal(spawnSync(process.execPath, ["-e", script]).signal, "SIGKILL");
}

const refuses = (says: RegExp) => (error: unknown) => error instanceof ConfigError && says.test(error.message);

// ── opening ────────────────────────────────────────────────────────────────────────────────────────────────────────

test("the socket has the mode asked for, takes callers, and its file is gone after close", async () => {
  const before = process.umask();
  for (const mode of [0o660, 0o600, 0o666]) {
    await using it = await listening({ udsMode: mode });
    assert.equal((await stat(it.path)).mode & 0o777, mode);
    await assertServes(it.path);
    await it.listener.close();
    await assert.rejects(stat(it.path), { code: "ENOENT" });
  }
  assert.equal(process.umask(), before);
});

test("a stale file is replaced, unless that was turned off", async () => {
  await using careful = await listenerAt({ deleteExistingUdsFile: false });
  leaveStale(careful.path);
  await assert.rejects(careful.listener.open(), refuses(/--delete-existing-uds-file/));
  await using it = await listenerAt();
  leaveStale(it.path);
  await it.listener.open();
  await assertServes(it.path);
});

test("a file that is no socket is never removed", async () => {
  await using it = await listenerAt();
  await writeFile(it.path, "data");
  await assert.rejects(it.listener.open(), refuses(/is not a socket/));
  assert.equal((await stat(it.path)).size, 4);
});

test("without a file descriptor it is unknown whether a server listens on the path, and the path is left alone", async (t) => {
  await using it = await listenerAt();
  leaveStale(it.path);
  for (const code of ["EMFILE", "ENFILE"]) {
    const fails = () => new Socket().destroy(Object.assign(new Error(`connect ${code}`), { code }));
    const mocked = t.mock.method(net, "connect", fails);
    syncBuiltinESMExports();
    await assert.rejects(it.listener.open(), refuses(/whether a server .* cannot be seen: .* has no file descriptor/));
    mocked.mock.restore();
    syncBuiltinESMExports();
  }
});

test("a path that cannot be used is a problem, and is tried again until it can", async () => {
  await using it = await listenerAt();
  await rm(join(it.folder, "d"), { recursive: true });
  await assert.rejects(
    it.listener.open(),
    refuses(/^blue\.yaml: callers\.uds: cannot listen on .*: its folder does not exist, or/),
  );
  assert.match(it.listener.state.problem ?? "", /: cannot listen on /);
  assert.equal(it.listener.state.up, false);
  await mkdir(join(it.folder, "d"));
  await until(() => it.listener.state.up);
  await assertServes(it.path);
  assert.deepEqual(
    it.lines.map(({ msg }) => msg),
    ["callers reach the unix socket"],
  );
});

test("a path that another server has is left to it, tried until it is free, and no more after close", async () => {
  await using it = await listenerAt();
  {
    await using _other = await otherOn(it.path);
    await assert.rejects(it.listener.open(), refuses(/another server listens on/));
    const [name] = await once(connect(it.path), "data");
    assert.equal(String(name), "other");
  }
  await until(() => it.listener.state.up);
  await it.listener.close();
  await using other = await otherOn(it.path);
  assert.ok(other);
  assert.equal(it.listener.state.up, false);
});

test("closing while it opens leaves no file and no listener behind", async () => {
  for (let round = 0; round < 20; round++) {
    await using it = await listenerAt();
    const opening = it.listener.open();
    for (let turns = 0; turns < round; turns++) await new Promise((resolve) => setImmediate(resolve));
    await it.listener.close();
    await opening;
    assert.equal(existsSync(it.path), false);
    await assert.rejects(once(connect(it.path), "connect"), { code: "ENOENT" });
  }
});

// ── a file that is not its own any more ────────────────────────────────────────────────────────────────────────────

test("a file that is removed is a problem that is logged once; open connections go on", async () => {
  await using it = await listening();
  const open = connect(it.path);
  await assertEchoes(open);
  await unlink(it.path);
  await until(() => !it.listener.state.up);
  const { problem = "" } = it.listener.state;
  assert.match(problem, /was removed or replaced while this server listened on it: restart the server$/);
  await new Promise((resolve) => setTimeout(resolve, 30)); // some checks later
  assert.deepEqual(
    it.lines.map(({ level, reason }) => [level, reason]),
    [["error", problem]],
  );
  assert.equal(existsSync(it.path), false, "the server does not listen again");
  await assertEchoes(open);
  open.destroy();
});

test("a file that has replaced its own is a problem, and stays when it closes", async () => {
  for (const isSocket of [true, false]) {
    await using it = await listening();
    if (!isSocket) await writeFile(`${it.path}2`, "precious");
    await using _other = isSocket ? await otherOn(`${it.path}2`) : undefined;
    await rename(`${it.path}2`, it.path);
    await until(() => !it.listener.state.up);
    await it.listener.close();
    assert.equal(existsSync(it.path), true);
    await unlink(it.path);
  }
});
