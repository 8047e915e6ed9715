import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { blackHoleTarget } from "../../e2e/harness/targets/absent.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import { MAX_INFO_BYTES, READ_RATE } from "./nats-connection.ts";
import { NatsDirectory } from "./nats-directory.ts";

const LOCATION = { serverId: "srv.1", address: "10.0.0.1:8096" };
const HELLO = `INFO ${JSON.stringify({ server_id: "x", version: "2.9.10", headers: true, max_payload: 1_048_576 })}\r\n`;

/** A NATS server whose every byte the test writes. `address`: another one is dialled in its place. */
async function rawNats(onSocket: (socket: Socket) => void, address?: string) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket.on("error", () => {}));
    onSocket(socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `nats://${address ?? `127.0.0.1:${(server.address() as AddressInfo).port}`}`;
  const directory = new NatsDirectory(LOCATION, contextOf({ serverId: LOCATION.serverId, directory: [url] }), 20);
  return {
    ...{ directory, sockets },
    [Symbol.asyncDispose]: async () => {
      await directory.close();
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** Speaks NATS as far as a directory needs it: each line of the client is given to `onLine`. */
function speak(socket: Socket, onLine: (line: string) => void): void {
  socket.write(HELLO);
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk.toString();
    const lines = text.split("\r\n");
    text = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "PING") socket.write("PONG\r\n");
      else onLine(line);
    }
  });
}

function reason({ state }: NatsDirectory): string {
  return state.detail;
}

test("answers that are too long, no JSON, or name no address are none; the first that is one counts", async () => {
  const subscribed: string[] = [];
  await using nats = await rawNats((socket) => {
    let inbox = "";
    speak(socket, (line) => {
      const [word, subject = "", reply = ""] = line.split(" ");
      if (word === "SUB") subscribed.push(subject);
      if (word === "SUB" && subject.startsWith("_INBOX")) inbox = line.split(" ").at(-1) ?? "";
      if (word !== "PUB") return;
      const answers = [
        "x".repeat(2_000),
        "{",
        '{"server":"srv-2","address":"nowhere"}',
        '{"server":"srv-2","address":"a:b@c:1"}',
        '{"server":"srv-3","address":"10.0.0.3:8096","more":1}',
      ];
      for (const answer of answers) socket.write(`MSG ${reply} ${inbox} ${answer.length}\r\n${answer}\r\n`);
    });
  });
  const { directory } = nats;
  directory.join("blue", () => true);
  await until(() => subscribed.includes("culvert.v1.cluster.blue"));
  assert.ok(subscribed.includes("culvert.v1.server.srv=1"));
  const found = await directory.ask({ cluster: "red" }, () => true);
  assert.deepEqual(found, { serverId: "srv-3", address: "10.0.0.3:8096" });
});

/**
 * A NATS server that answers each question with `answer` of its subject; `undefined`: nobody listens there; `+OK`:
 * somebody does, and says nothing.
 */
function answering(socket: Socket, answer: (subject: string) => string | undefined): void {
  let inbox = "";
  speak(socket, (line) => {
    const [word, subject = "", reply = ""] = line.split(" ");
    if (word === "SUB" && subject.startsWith("_INBOX")) inbox = line.split(" ").at(-1) ?? "";
    if (word !== "PUB") return;
    const text = answer(subject);
    if (text?.startsWith("-ERR") || text === "+OK") socket.write(`${text}\r\n`);
    else if (text !== undefined) socket.write(`MSG ${reply} ${inbox} ${text.length}\r\n${text}\r\n`);
    else socket.write(`HMSG ${reply} ${inbox} 16 16\r\nNATS/1.0 503\r\n\r\n\r\n`);
  });
}

function faults({ state }: NatsDirectory): string {
  return state.detail.startsWith("connected") ? state.faults.join("; ") : "not connected";
}

test("another server with the id of this one is reported while it answers, and one at this address is none", async () => {
  let address = LOCATION.address;
  let questions = 0;
  await using nats = await rawNats((socket) =>
    answering(socket, (subject) => {
      if (subject !== "culvert.v1.server.srv=1") return undefined;
      questions++;
      return JSON.stringify({ server: LOCATION.serverId, address });
    }),
  );
  const { directory } = nats;
  await until(() => questions > 1);
  assert.equal(faults(directory), "");
  address = "10.0.0.9:8096";
  await until(() => faults(directory) !== "");
  assert.equal(faults(directory), "another server with this --server-id answers at 10.0.0.9:8096: give each its own");
  assert.match(String(directory.state.trouble), /another server has the --server-id of this one/);
  assert.ok(directory.state.canAsk, "whoever writes to NATS could forge it: it makes no server unready");
  address = LOCATION.address;
  await until(() => faults(directory) === "");
});

test("what NATS does not permit is reported until a question comes through", async () => {
  let isPermitted = false;
  await using nats = await rawNats((socket) =>
    answering(socket, (subject) =>
      isPermitted ? undefined : `-ERR 'Permissions Violation for Publish to "${subject}"'`,
    ),
  );
  const { directory } = nats;
  await until(() =>
    /NATS refuses to let this server publish culvert\.v1\.\S+: allow culvert\.v1\.>/.test(faults(directory)),
  );
  assert.match(String(directory.state.trouble), /other servers could not be asked/);
  isPermitted = true;
  assert.equal(await directory.ask({ cluster: "blue" }, () => true), undefined);
  assert.equal(faults(directory), "");
});

test("a question that somebody listens to and nobody answers is told apart from one that nobody listens to", async () => {
  await using nats = await rawNats((socket) =>
    answering(socket, (subject) => (subject.endsWith(".hung") ? "+OK" : undefined)),
  );
  const { directory } = nats;
  await until(() => directory.state.canAsk);
  assert.equal(await directory.ask({ cluster: "hung" }, () => true), "silent");
  assert.equal(await directory.ask({ cluster: "blue" }, () => true), undefined);
});

test("more questions than a server answers in a second are refused, and who asks knows that it is there", async (t) => {
  let now = 1_000_000;
  t.mock.method(performance, "now", () => now);
  const sizes: number[] = [];
  let ask = (_questions: number): void => assert.fail("nobody listens");
  await using nats = await rawNats((socket) => {
    speak(socket, (line) => {
      const [word, subject = "", sid = ""] = line.split(" ");
      if (word === "SUB" && subject === "culvert.v1.cluster.blue") {
        ask = (questions) => void socket.write(`MSG ${subject} ${sid} inbox 0\r\n\r\n`.repeat(questions));
        ask(5_003);
      }
      if (word === "PUB" && subject === "inbox") sizes.push(Number(sid));
    });
  });
  nats.directory.join("blue", () => true);
  await until(() => sizes.length === 5_003);
  assert.deepEqual([sizes.indexOf(0), sizes.filter((size) => size === 0).length], [5_000, 3], "the last are refused");
  now += 1; // for five more
  ask(6);
  await until(() => sizes.length === 5_009);
  assert.deepEqual(
    sizes.slice(5_003).map((size) => size > 0),
    [true, true, true, true, true, false],
  );
  t.mock.restoreAll();

  await using busy = await rawNats((socket) => answering(socket, () => ""));
  await until(() => busy.directory.state.canAsk);
  assert.equal(await busy.directory.ask({ cluster: "blue" }, () => true), "busy");
});

test("credentials that NATS refuses are named with their option", async () => {
  await using nats = await rawNats((socket) => {
    socket.write(HELLO);
    socket.once("data", () => socket.end("-ERR 'Authorization Violation'\r\n"));
  });
  await until(() => /Authorization Violation; check --directory-credentials/.test(reason(nats.directory)));
});

test("a subject that may not be listened to is reported, and the next connection begins without a fault", async () => {
  let isPermitted = false;
  await using nats = await rawNats((socket) =>
    speak(socket, (line) => {
      const [word, subject = ""] = line.split(" ");
      if (word !== "SUB" || isPermitted || !subject.startsWith("culvert.v1.server")) return;
      socket.write(`-ERR 'Permissions Violation for Subscription to "${subject}"'\r\n`);
    }),
  );
  const { directory, sockets } = nats;
  const sentence = "NATS refuses to let this server subscribe culvert.v1.server.srv=1: allow culvert.v1.>";
  await until(() => faults(directory) === sentence);
  assert.equal(directory.state.trouble, undefined, "others can be asked");
  isPermitted = true;
  sockets[0]?.destroy();
  await until(() => sockets.length > 1 && faults(directory) === "");
});

test("a NATS server whose first line never ends, or is none, is given up, and nothing of it is kept", async () => {
  let sent = 0;
  await using endless = await rawNats((socket) => {
    const more = (): void => {
      if (socket.destroyed) return;
      sent += 16_384;
      socket.write(Buffer.alloc(16_384, "x"), more);
    };
    more();
  });
  await until(() => /first line is too long/.test(reason(endless.directory)));
  assert.ok(sent >= MAX_INFO_BYTES);
  await using other = await rawNats((socket) => void socket.write("SSH-2.0-x\r\n"));
  await until(() => /NATS at 127\.0\.0\.1:\d+: no NATS server answers there/.test(reason(other.directory)));
});

test("a connection on which a NATS server says nothing is closed before the next one, and one that does not answer is named", async () => {
  await using hole = await blackHoleTarget();
  await using silent = await rawNats(() => {}, hole.address);
  await using nats = await rawNats((socket) => void socket.resume());
  await until(() => nats.sockets.length > 1);
  assert.equal(nats.sockets[0]?.destroyed, true);
  assert.match(reason(nats.directory), /: a NATS server of --directory took longer than 3 s: check its process/);
  await until(() => /NATS at 127\.0\.0\.1:\d+: no answer in time/.test(reason(silent.directory)));
});

test("a connection on which a NATS server falls silent is lost, and the reason names the server", async () => {
  await using nats = await rawNats((socket) => {
    let answered = 0;
    socket.write(HELLO);
    socket.on("data", (chunk: Buffer) => {
      if (chunk.includes("PING\r\n") && answered++ === 0) socket.write("PONG\r\n");
    });
  });
  await until(() => nats.sockets[0]?.destroyed === true);
  await until(() => /: NATS at 127\.0\.0\.1:\d+ answers no pings: check its process/.test(reason(nats.directory)));
});

test("a NATS server that floods is read no faster than the bound, and one that sends nonsense is left", async () => {
  const kernelBytes = 16 * 1024 * 1024; // what the buffers of a loopback connection take at most, and some more
  const enough = READ_RATE.burst + 4 * kernelBytes;
  let taken = 0;
  let begunAt = 0;
  await using flood = await rawNats((socket) => {
    speak(socket, (line) => {
      if (!line.startsWith("SUB culvert.v1.server")) return;
      socket.write("MSG culvert.v1.server.srv=1 1 999999999\r\n"); // and all of it comes
      begunAt = performance.now();
      const more = (): void => {
        taken += 65_536;
        if (!socket.destroyed && taken < enough) socket.write(Buffer.alloc(65_536), more);
      };
      socket.write(Buffer.alloc(65_536), more);
    });
  });
  await until(() => taken > READ_RATE.burst);
  await until(() => taken >= enough || performance.now() - begunAt > 1_000);
  const seconds = (performance.now() - begunAt) / 1_000;
  const allowed = READ_RATE.burst + READ_RATE.perSecond * seconds + kernelBytes;
  assert.ok(taken < allowed, `${taken} of ${allowed} bytes were taken in ${seconds} s`);
  assert.ok(flood.directory.state.canAsk, "the connection is kept");

  let connections = 0;
  await using nonsense = await rawNats((socket) => {
    connections++;
    speak(socket, (line) => {
      if (line.startsWith("SUB")) socket.write("NONSENSE\r\n");
    });
  });
  await until(() => connections > 1);
  await until(() => reason(nonsense.directory).includes(": the connection was closed;"));
  assert.ok(nonsense.sockets[0]?.destroyed || nonsense.sockets[0]?.readableEnded);
});
