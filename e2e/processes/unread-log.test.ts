import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { createConnection, createServer, type Socket } from "node:net";
import { describe, test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { MAIN, RUNTIME } from "../harness/processes.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor, within } from "../harness/wait.ts";

/** A log that nobody reads until `read` is called. */
interface Unread {
  /** The descriptor that a process writes to. */
  readonly fd: number | Socket;
  /** All that was written so far. */
  read(): Promise<string>;
  [Symbol.asyncDispose](): Promise<void>;
}

async function pipe(): Promise<Unread> {
  const dir = new TempDir();
  const path = dir.file("pipe");
  spawnSync("mkfifo", [path]);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const fd = openSync(path, "w"); // a write waits, as in a container
  const read = async (): Promise<string> => {
    const buffer = Buffer.alloc(65_536);
    let text = "";
    try {
      for (let count = readSync(reader, buffer); count > 0; count = readSync(reader, buffer)) {
        text += buffer.toString("utf8", 0, count);
      }
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, "EAGAIN");
    }
    return text;
  };
  return {
    ...{ fd, read },
    [Symbol.asyncDispose]: async () => {
      closeSync(reader);
      closeSync(fd);
      dir[Symbol.dispose]();
    },
  };
}

/** As journald gives it to a service. */
async function socket(): Promise<Unread> {
  const dir = new TempDir();
  const server = createServer({ pauseOnConnect: true });
  server.listen(dir.file("s"));
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const fd = createConnection(dir.file("s"));
  const [reader] = await accepted;
  let text = "";
  reader.on("data", (chunk) => {
    text += chunk.toString();
  });
  reader.pause();
  return {
    fd,
    read: async () => {
      reader.resume();
      const read = text;
      text = "";
      return read;
    },
    [Symbol.asyncDispose]: async () => {
      fd.destroy();
      reader.destroy();
      server.close();
      dir[Symbol.dispose]();
    },
  };
}

const KINDS = { pipe, socket } as const;
const VARIANTS = [
  ["pipe", true],
  ["pipe", false],
  ["socket", true],
  ["socket", false],
] as const;

function startServer(site: Site, { fd }: Unread) {
  const argv = [MAIN, ...site.serverArguments({ logLevel: "debug", logFormat: "json" })];
  return spawn(RUNTIME, argv, { stdio: ["ignore", fd, fd] });
}

/** CONNECTs that are refused at once. At level debug, each is a line of 700 bytes. */
async function fill(site: Site): Promise<void> {
  const request = `CONNECT ${"x".repeat(250)} HTTP/1.1\r\n\r\n`;
  const refused = Array.from({ length: 100 }, async () => {
    const caller = createConnection(site.uds).on("error", () => {});
    caller.end(request);
    caller.resume();
    await once(caller, "close");
  });
  await Promise.all(refused);
}

const LOST = /\[!\]log: \d+ lines of the log are lost: nobody reads it/;

describe("a log that nobody reads", { concurrency: 2 }, () => {
  for (const [kind, isRead] of WHOLE_MATRICES ? VARIANTS : VARIANTS.slice(0, 1)) {
    const end = isRead ? "counts what it lost when reading goes on" : "ends at SIGTERM all the same";
    test(`a server whose log is a ${kind} serves, says so in readyz, and ${end}`, async (t) => {
      await using echo = await TARGETS.echo();
      using site = await createSite();
      await using log = await KINDS[kind]();
      const server = startServer(site, log);
      t.after(() => server.kill("SIGKILL"));
      const url = `http://127.0.0.1:${site.healthPort}/readyz?verbose`;
      const ready = async (): Promise<string> => (await fetch(url, { signal: AbortSignal.timeout(5_000) })).text();
      await waitFor(() => ready().catch(() => ""), { deadlineMs: 30_000, what: "readyz" });
      await using _agent = await site.startAgent();
      for (let rounds = 0; rounds < 60 && !LOST.test(await ready()); rounds++) await fill(site);
      assert.match(await ready(), LOST);
      await using connection = await site.open("uds", echo.address);
      await connection.send("still served");
      if (isRead) {
        let text = "";
        const isSaid = async (): Promise<boolean> => {
          text += await log.read();
          return text.includes('"lines of the log are lost"');
        };
        await waitFor(isSaid, { deadlineMs: 10_000, what: "the number of lost lines" });
        const line = text.split("\n").find((each) => each.includes('"lines of the log are lost"')) ?? "";
        assert.ok(JSON.parse(line).lost > 0, line);
        assert.doesNotMatch(await ready(), /\]log/);
      }
      connection.socket.destroy();
      server.kill("SIGTERM");
      assert.deepEqual(await within(once(server, "exit"), 15_000, "the server to end"), [0, null]);
    });
  }
});
