import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { TLSSocket } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
import { prepared } from "./testing/agent.ts";

/** A JWT as far as an agent looks at it: it ends this number of seconds from now. */
function token(name: string, endsInS = 3_600): string {
  const payload = { sub: name, exp: Math.floor(Date.now() / 1_000) + endsInS };
  return `e30.${Buffer.from(JSON.stringify(payload)).toString("base64url")}.${"s".repeat(40)}`;
}

/** A server that keeps what `Authorization` it was shown, and an agent that has nothing but a token in a file. */
async function tokenAgent(t: TestContext, firstToken: string, refuse?: (socket: TLSSocket) => boolean) {
  const { server, dir, texts, lines, start } = await prepared(t);
  if (refuse !== undefined) server.refuse = refuse;
  const shown: (string | undefined)[] = [];
  server.server.on("upgrade", ({ headers }: IncomingMessage) => shown.push(headers.authorization));
  const serviceAccountTokenPath = join(dir, "token");
  const write = (text: string) => writeFile(serviceAccountTokenPath, `${text}\n`);
  await write(firstToken);
  return { shown, write, start: () => start({ serviceAccountTokenPath }), lines, texts };
}

test("an agent without a certificate shows its token, and a new one in the file moves it to a new connection", async (t) => {
  const [first, second] = [token("first"), token("second")];
  const { shown, write, start, lines, texts } = await tokenAgent(t, first);
  const agent = await start();
  await agent.whenConnected();
  assert.deepEqual(shown, [`Bearer ${first}`]);
  await write(second);
  await until(() => lines.some(({ msg }) => msg === "uplink moved to a new connection"));
  assert.deepEqual(shown, [`Bearer ${first}`, `Bearer ${second}`]);
  assert.ok(!lines.some(({ msg }) => msg === "uplink suspended"), "the new one came first");
  for (const part of [first, second].flatMap((one) => one.split(".").slice(1))) {
    assert.ok(!texts.some((text) => text.includes(part)), "no token in the log");
  }
});

test("a connection is replaced a minute before its token ends", async (t) => {
  const { shown, start } = await tokenAgent(t, token("a", 62));
  await (await start()).whenConnected();
  await until(() => shown.length >= 2);
});

test("what the server says of a token is in the agent's log, the token is not", async (t) => {
  const sentence = 'the token is for "other", not for "culvert"';
  const mine = token("mine");
  const { start, lines, texts } = await tokenAgent(t, mine, (socket) => {
    const head = "HTTP/1.1 401 Unauthorized\r\nProxy-Status: culvert\r\nContent-Type: text/plain\r\nConnection: close";
    socket.end(`${head}\r\n\r\n${sentence}\n`);
    return true;
  });
  await start();
  await until(() => lines.some(({ msg }) => msg === "uplink refused: the server does not accept this agent"));
  const { level, reason } = lines.find(({ msg }) => String(msg).startsWith("uplink refused")) ?? assert.fail();
  assert.equal(level, 50);
  assert.equal(reason, `the server refused the tunnel (401): ${sentence}`);
  assert.ok(!texts.some((text) => text.includes(mine)));
});

test("a backend that repeats the request in its answer puts no token into the log", async (t) => {
  const mine = token("mine");
  const { start, lines, texts } = await tokenAgent(t, mine, (socket) => {
    socket.end(`HTTP/1.1 200 OK\r\nServer: debug\r\nConnection: close\r\n\r\nauthorization: Bearer ${mine}\n`);
    return true;
  });
  await start();
  await until(() => lines.some(({ msg }) => msg === "uplink attempt failed"));
  const { reason } = lines.find(({ msg }) => msg === "uplink attempt failed") ?? assert.fail();
  assert.match(
    String(reason),
    /in between answered .*\(200 OK, "\(not shown: it repeats our token\)", server "debug"\)/,
  );
  for (const part of mine.split(".").slice(1)) assert.ok(!texts.some((text) => text.includes(part.slice(0, 8))));
});
