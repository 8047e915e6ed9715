import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, unlink, writeFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createLogger } from "../../shared/runtime/logger.ts";
import { UnixListener } from "./unix-listener.ts";

interface Line {
  readonly level: string;
  readonly reason?: string;
  readonly msg: string;
}

/** The same, open. */
async function listening() {
  const it = await listenerAt();
  await it.listener.open();
  return it;
}

/** A listener that echoes, on a path in a folder of its own, and looks at its file all the time. */
async function listenerAt() {
  const folder = await mkdtemp(join(tmpdir(), "culvert-uds-"));
  await mkdir(join(folder, "d"));
  const path = join(folder, "d", "s");
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "test", destination });
  const onSocket = (socket: Socket) => void socket.on("error", () => {}).pipe(socket);
  const bind = { path, option: "--uds-name", mode: 0o660, deleteExisting: true, backlog: 16 };
  const listener = new UnixListener({ ...bind, onSocket, log, lookMs: 5 });
  return {
    ...{ folder, path, lines, listener },
    [Symbol.asyncDispose]: async () => {
      await listener.close();
      await rm(folder, { recursive: true });
    },
  };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `not within 5 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
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

/** Somebody else's listener, which says its name. */
async function otherOn(path: string) {
  const server = createServer((socket) => socket.on("error", () => {}).end("other"));
  server.listen(path);
  await once(server, "listening");
  return { [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

test("a file that is removed is said, and comes back; a connection that was open lives on", async () => {
  await using it = await listening();
  const open = connect(it.path);
  await assertEchoes(open);
  for (let round = 1; round <= 3; round++) {
    await unlink(it.path);
    await until(() => it.lines.length === 2 * round);
    await assertServes(it.path);
    await assertEchoes(open);
  }
  const [gone, back] = it.lines;
  assert.equal(gone?.level, "error");
  assert.match(gone?.reason ?? "", /s was removed or replaced while this server listened on it$/);
  assert.equal(back?.level, "info");
  assert.equal(it.listener.state.problem, undefined);
  open.destroy();
});

test("a folder that is removed is a problem until it is there again", async () => {
  await using it = await listening();
  await rm(join(it.folder, "d"), { recursive: true });
  await until(() => /its folder does not exist/.test(it.listener.state.problem ?? ""));
  await mkdir(join(it.folder, "d"));
  await until(() => it.listener.state.problem === undefined);
  await assertServes(it.path);
});

test("another server that took the path keeps it, file and all, even when this one closes", async () => {
  await using it = await listening();
  await using _other = await otherOn(`${it.path}2`);
  await rename(`${it.path}2`, it.path);
  await until(() => /another server listens on/.test(it.listener.state.problem ?? ""));
  const told = it.lines.length;
  const [name] = await once(connect(it.path), "data");
  assert.equal(String(name), "other");
  await it.listener.close();
  assert.equal(existsSync(it.path), true);
  assert.equal(it.lines.length, told, "a problem is said once, not at each look");
  await unlink(it.path);
});

test("a path that another server has left is taken back, with what it left there", async () => {
  await using it = await listening();
  {
    await using _other = await otherOn(`${it.path}2`);
    await rename(`${it.path}2`, it.path); // closing removes the name it was bound to, so this one stays
    await until(() => /another server listens on/.test(it.listener.state.problem ?? ""));
  }
  await until(() => it.listener.state.problem === undefined);
  await assertServes(it.path);
});

test("a file that is no socket is left alone", async () => {
  await using it = await listening();
  await writeFile(`${it.path}2`, "precious");
  await rename(`${it.path}2`, it.path);
  await until(() => /exists and is not a socket/.test(it.listener.state.problem ?? ""));
  await it.listener.close();
  assert.equal(existsSync(it.path), true);
});

test("closing in the middle of a look leaves no file and no listener behind", async () => {
  for (let round = 0; round < 20; round++) {
    await using it = await listening();
    await unlink(it.path);
    await new Promise((resolve) => setTimeout(resolve, round / 2));
    await it.listener.close();
    assert.equal(existsSync(it.path), false);
    await assert.rejects(once(connect(it.path), "connect"), { code: "ENOENT" });
  }
});

test("a path that cannot be had is tried until it can, and said once; the first try says why", async () => {
  await using it = await listenerAt();
  await rm(join(it.folder, "d"), { recursive: true });
  await assert.rejects(it.listener.open(), /^ConfigError: --uds-name: cannot listen on .*: its folder does not exist/);
  assert.match(it.listener.state.problem ?? "", /^--uds-name: cannot listen on /);
  assert.equal(it.listener.state.up, false);
  await mkdir(join(it.folder, "d"));
  await until(() => it.listener.state.up);
  await assertServes(it.path);
  assert.deepEqual(
    it.lines.map(({ msg }) => msg),
    ["callers reach the unix socket again"],
  );
});

test("a path that is another's is left to it, tried until it is free, and no more once this one is closed", async () => {
  await using it = await listenerAt();
  {
    await using _other = await otherOn(it.path);
    await assert.rejects(it.listener.open(), /another server listens on/);
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
