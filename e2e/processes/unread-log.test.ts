import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { createConnection, createServer, type Socket } from "node:net";
import { describe, test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { FULL } from "../harness/counts.ts";
import { MAIN } from "../harness/processes.ts";
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
      return text;
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

/** Its lines are at debug level, so that few CONNECTs fill the pipe. */
function startServer(site: Site, { fd }: Unread) {
  const argv = [MAIN, ...site.serverArguments({ logLevel: "debug", logFormat: "json" })];
  return spawn(process.execPath, argv, { stdio: ["ignore", fd, fd] });
}

describe("a log that nobody reads", { concurrency: 2 }, () => {
  for (const kind of FULL ? (["pipe", "socket"] as const) : (["pipe"] as const)) {
    test(`a server whose log is a ${kind} serves, says so in readyz, ends at SIGTERM, and counts what it lost`, async (t) => {
      await using echo = await TARGETS.echo();
      using site = await createSite();
      await using log = await KINDS[kind]();
      const server = startServer(site, log);
      t.after(() => server.kill("SIGKILL"));
      const ready = async (): Promise<string> => {
        const answer = await fetch(`http://127.0.0.1:${site.healthPort}/readyz?verbose`, {
          signal: AbortSignal.timeout(2_000),
        });
        return answer.text();
      };
      await waitFor(() => ready().catch(() => ""), { deadlineMs: 30_000, what: "readyz" });
      await using _agent = await site.startAgent();
      // A served CONNECT is a line of 400 bytes. A pipe holds 64 KiB of them, and the process 1 MiB.
      let most = 0;
      for (; most < 8_000 && !/\[!\]log: \d+ lines of the log are lost/.test(await ready()); most += 200) {
        await Promise.all(
          Array.from({ length: 200 }, async () => {
            await using connection = await connectThrough(site.listener("uds"), echo.address);
            assert.equal(connection.status, 200);
          }),
        );
      }
      assert.match(await ready(), /\[!\]log: \d+ lines of the log are lost: nobody reads it/);
      let text = "";
      await waitFor(
        async () => {
          text += await log.read();
          return text.includes("lines of the log are lost");
        },
        { deadlineMs: 10_000, what: "the number of lost lines" },
      );
      const lost = text.split("\n").find((line) => line.includes("lines of the log are lost")) ?? "";
      assert.ok(JSON.parse(lost).lost > 0);
      assert.doesNotMatch(await ready(), /\]log/);
      server.kill("SIGTERM");
      const [code] = await within(once(server, "exit"), 10_000, "the server to end");
      assert.equal(code, 0);
    });
  }
});
