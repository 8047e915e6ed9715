import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { WebSocket } from "ws";
import type { AgentOptions } from "../../agent/context/options.ts";
import { textFrame } from "../../shared/link/testing/frames.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { BehindMiddlebox, type BehindMiddleboxOptions } from "../harness/behind-middlebox.ts";
import { established } from "../harness/caller.ts";
import { type Middlebox, messagesIn } from "../harness/middlebox.ts";
import { waitFor, within } from "../harness/wait.ts";

const MARKER = "the-marker-that-nobody-in-between-may-read";

/** A server and its agent, with a box in between that opens TLS. */
async function behindBox(t: TestContext, options: BehindMiddleboxOptions = {}) {
  const behind = await BehindMiddlebox.start(t, options);
  const { world, box, lines } = behind;
  const echoed = async (text: string) => {
    await using connection = await established(world.connect("echo"));
    await connection.send(text);
    await waitFor(async () => (await connection.read()) === text);
  };
  const start = (more: Partial<AgentOptions> = {}, wait = true) => behind.startAgent(more, { wait });
  return { world, box, lines, start, echoed, line: (msg: string) => behind.said(msg) };
}

test("where TLS is opened in between, the agent comes up by inner TLS, and nobody reads what passes", async (t) => {
  const { box, start, echoed, line } = await behindBox(t);
  const agent = await start();
  await echoed(MARKER);
  const [opened] = line("tunnel opened");
  assert.deepEqual([opened?.["identity"], opened?.["innerTls"]], ["CN=culvert-agent", true]);
  assert.deepEqual(box.shown, [], "the certificate is not shown to the box");
  assert.ok(box.opened.length > 0);
  const read = messages(box);
  assert.ok(read.length > 1_000);
  assert.equal(read.includes(MARKER), false);
  assert.equal(read.includes("culvert-agent"), false);
  await agent.close();
  await waitFor(() => line("tunnel closed").length === 1);
});

test("the same box reads all when it is the server's own CA that it has, and inner TLS is off", async (t) => {
  const { box, start, echoed } = await behindBox(t, { innerTls: false });
  await start();
  await echoed(MARKER);
  assert.equal(messages(box).includes(MARKER), true);
});

test("without the middlebox's CA the agent fails closed, and names who stands there", async (t) => {
  const { start, line, box } = await behindBox(t, { agent: { outerCa: "" } });
  await start({}, false);
  const failed = await waitFor(() => line("uplink attempt failed")[0]);
  await waitFor(() => line("uplink attempt failed").length > 2);
  assert.ok(box.shown.length <= 1, "who has been found there once is shown nothing any more");
  assert.match(String(failed["reason"]), /^TLS is intercepted by "Corp Inspection CA", /);
  assert.equal(messages(box).length, 0);
});

test("a middlebox that cuts every connection costs no stream: the link is resumed by proof", async (t) => {
  const { box, start, world, line } = await behindBox(t);
  await start();
  await using connection = await world.connect("echo");
  const sent = Array.from({ length: 40 }, (_, i) => `line ${i} `.repeat(500)).join("");
  let got = "";
  for (let part = 0; part < 4; part++) {
    await connection.send(sent.slice((part * sent.length) / 4, ((part + 1) * sent.length) / 4));
    box.cut();
    await waitFor(() => line("uplink resumed").length > part, { deadlineMs: 10_000 });
  }
  while (got.length < sent.length) got += await connection.read();
  assert.equal(got, sent);
  assert.equal(line("tunnel opened").length, 1, "it was one link all the time");
  const hellos = outerHellos(box).filter(({ resume }) => resume !== undefined);
  assert.ok(hellos.length >= 4);
  for (const { resume } of hellos) {
    assert.deepEqual(Object.keys(resume ?? {}).sort(), ["counter", "link", "proof", "received"]);
  }
  const counters = hellos.map(({ resume }) => resume?.["counter"] as number);
  assert.deepEqual(
    counters,
    [...new Set(counters)].sort((one, other) => one - other),
    "it only rises",
  );
});

test("a middlebox that has seen everything cannot take the link over", async (t) => {
  const { box, start, world, line } = await behindBox(t);
  await start();
  await using connection = await world.connect("echo");
  await connection.send("before ");
  assert.equal(await connection.read(), "before ");
  box.cut();
  await waitFor(() => line("uplink resumed").length === 1, { deadlineMs: 10_000 });
  await connection.send("between ");
  assert.equal(await connection.read(), "between ");

  const seen = outerHellos(box).findLast(({ resume }) => resume !== undefined);
  assert.ok(seen?.resume);
  const { counter, received } = seen.resume as { counter: number; received: number };
  const port = world.server.addresses.agents?.port ?? 0;
  const own = { type: "hello", version: 1, inner: true };
  const refused: [string, object, RegExp][] = [
    ["the hello once more", seen as object, /the proof of this resume is wrong/],
    [
      "a higher counter",
      { ...own, resume: { ...seen?.resume, counter: counter + 1 } },
      /the proof of this resume is wrong/,
    ],
    [
      "another offset",
      { ...own, resume: { ...seen?.resume, received: received + 1 } },
      /the proof of this resume is wrong/,
    ],
    [
      "a hello outside the inner TLS",
      { ...own, inner: undefined, ...names, resume: { ...seen.resume, counter: counter + 1 } },
      /./,
    ],
  ];
  for (const [what, hello, reason] of refused) {
    const { code, words } = await closeOf(await sayHello(box, port, hello));
    assert.ok(code === 4453 || code === 4401, `${what}: ${code}`);
    assert.match(words, reason, what);
  }
  await connection.send("after");
  assert.equal(await connection.read(), "after", "the real link has noticed nothing");
  assert.deepEqual([line("tunnel resumed").length + line("tunnel moved").length, line("tunnel lost").length], [1, 0]);
});

test("a middlebox that speaks of its own sends nobody away", async (t) => {
  const { box, start, world, line, echoed } = await behindBox(t);
  await start();
  await using connection = await world.connect("echo");
  const [opened] = box.opened.slice(-1);
  assert.ok(opened);
  for (const message of [{ type: "drain", retryAfterMs: 86_400_000 }, { type: "ping" }]) {
    opened.near.write(textFrame(message));
    opened.far.write(textFrame(message, Buffer.alloc(4)));
  }
  const answers = (half: Buffer[]) => messagesIn(Buffer.concat(half)).filter((each) => each.includes('"pong"')).length;
  await waitFor(() => answers(opened.sent) > 0 && answers(opened.answered) > 0);
  await echoed("a new connection");
  await connection.send("and one that was there");
  assert.equal(await connection.read(), "and one that was there");
  assert.deepEqual([line("server asked the agent to reconnect").length, line("uplink connected").length], [0, 1]);
});

test("a token is shown to nobody but the server: not to a middlebox that is not expected, nor to one that is", async (t) => {
  const { box, start, world, line } = await behindBox(t);
  const tokenFile = world.dir.file("token");
  await writeFile(tokenFile, MARKER);
  const byToken = { agentCert: "", agentKey: "", serviceAccountTokenPath: tokenFile };
  const failClosed = await start({ ...byToken, outerCa: "" }, false);
  await waitFor(() => line("uplink attempt failed").length > 2);
  await failClosed.close();
  // This server takes no tokens, so that it is the certificate which is missed, inside.
  const through = await start(byToken, false);
  await waitFor(() => line("uplink refused: the server does not accept this agent").length > 0);
  await through.close();
  assert.ok(box.opened.length > 0);
  assert.equal(box.read.includes(MARKER), false);
  // A box with a certificate of --ca-cert is shown the token: the test looks in the right place.
  await start({ ...byToken, caCert: world.dir.file("box-ca.crt"), outerCa: "" }, false);
  await waitFor(() => box.read.includes(`Bearer ${MARKER}`));
});

test("unauthenticated peers are refused in the inner TLS, each with a sentence that nobody in between reads", async (t) => {
  const { box, start, world, line } = await behindBox(t, { server: { agentIdentities: ["CN=culvert-agent"] } });
  const { clusterAuthority } = world.pki;
  const otherAuthority = await Authority.create("other");
  const hourAgo = new Date(Date.now() - 3_600_000);
  const refusedAgents = [
    ["nothing", undefined, /no client certificate was sent/],
    [
      "another CA's",
      await otherAuthority.issue({ cn: "culvert-agent", usage: "client" }),
      /not signed by a CA that is accepted here/,
    ],
    [
      "expired",
      await clusterAuthority.issue({ cn: "culvert-agent", usage: "client", notAfter: hourAgo }),
      /the client certificate expired on/,
    ],
    [
      "somebody else's",
      await clusterAuthority.issue({ cn: "mallory", usage: "client" }),
      /CN=mallory is not among --agent-identities/,
    ],
  ] as const;
  for (const [index, [what, pair, reason]] of refusedAgents.entries()) {
    const files = { agentCert: "", agentKey: "" };
    if (pair !== undefined) {
      files.agentCert = world.dir.file(`${index}.crt`);
      files.agentKey = world.dir.file(`${index}.key`);
      await writeFile(files.agentCert, pair.cert);
      await writeFile(files.agentKey, pair.key);
    }
    const agent = await start({ ...files, agentId: `refused-${index}` }, false);
    const refusal = await waitFor(() => line("uplink refused: the server does not accept this agent")[index]);
    assert.match(String(refusal["reason"]), reason, what);
    await agent.close();
  }
  assert.equal(line("tunnel opened").length, 0);
  const read = messages(box).toString("latin1");
  for (const secret of ["certificate", "mallory", "CA that is accepted"]) assert.equal(read.includes(secret), false);
});

test("unauthenticated peers that come again and again are counted, and few of them are written", async (t) => {
  const { box, world, line } = await behindBox(t);
  const port = world.server.addresses.agents?.port ?? 0;
  for (let count = 0; count < 15; count++) {
    const noise = await sayHello(box, port, { type: "hello", version: 1, inner: true });
    noise.send(Buffer.from("this is no ClientHello"));
    await closeOf(noise);
  }
  await waitFor(() => line("agent refused").length >= 15);
  assert.equal(line("agent refused").filter(({ level }) => level === "warn").length, 10);
});

test("those of whom nobody knows who they are, are few, and have little time", async (t) => {
  const { box, world } = await behindBox(t, { server: { maxInnerHandshakes: 4, handshakeTimeoutMs: 500 } });
  const port = world.server.addresses.agents?.port ?? 0;
  const hello = { type: "hello", version: 1, inner: true };
  const silent = await Promise.all([1, 2, 3, 4].map(() => sayHello(box, port, hello)));
  const ends = silent.map(closeOf);
  const newcomer = await sayHello(box, port, hello);
  const dropped = await Promise.race(ends);
  assert.equal(dropped.code, 4429);
  assert.match(dropped.words, /--max-inner-handshakes/);
  assert.equal((await closeOf(newcomer)).code, 4457);
  const loud = await waitFor(() => sayHello(box, port, hello));
  loud.send(Buffer.alloc(40 * 1024, 0x16));
  assert.equal((await closeOf(loud)).code, 4457);
});

test("a resume by proof takes no room from inner handshakes, and finds its way although that room is full", async (t) => {
  const { box, start, world, line } = await behindBox(t, { server: { maxInnerHandshakes: 2 } });
  await start();
  await using connection = await world.connect("echo");
  const port = world.server.addresses.agents?.port ?? 0;
  const silent = await Promise.all([1, 2].map(() => sayHello(box, port, { type: "hello", version: 1, inner: true })));
  const ends: string[] = [];
  for (const ws of silent) ws.once("close", (code) => ends.push(String(code)));
  box.cut();
  await waitFor(() => line("uplink resumed").length === 1, { deadlineMs: 5_000 });
  await connection.send("after");
  assert.equal(await connection.read(), "after");
  assert.deepEqual([ends, line("uplink attempt failed").length], [[], 0]);
  for (const ws of silent) ws.terminate();
});

test("a server that takes no inner TLS says so", async (t) => {
  const { start, line } = await behindBox(t, { server: { innerTls: "never" } });
  await start({}, false);
  const refusal = await waitFor(() => line("uplink refused: the server does not accept this agent")[0]);
  assert.match(String(refusal["reason"]), /no client certificate was sent/);
});

test("with nobody in between an agent in auto shows its certificate outside, as ever", async (t) => {
  const { start, echoed, line, world, box } = await behindBox(t);
  await start({ proxyServerPort: world.server.addresses.agents?.port ?? 0 });
  await echoed("hello");
  const [opened] = line("tunnel opened");
  assert.deepEqual([opened?.["identity"], opened?.["innerTls"]], ["CN=culvert-agent", undefined]);
  assert.equal(box.opened.length, 0);
});

test("always: inner TLS also where nobody stands between, and a server that wants it takes nothing else", async (t) => {
  const { start, echoed, line, world } = await behindBox(t, { server: { innerTls: "always" } });
  const direct = { proxyServerPort: world.server.addresses.agents?.port ?? 0, outerCa: "" };
  await start({ ...direct, innerTls: "never" }, false);
  const refusal = await waitFor(() => line("uplink refused: the server does not accept this agent")[0]);
  assert.match(String(refusal["reason"]), /inner TLS only/);
  await start({ ...direct, innerTls: "always", agentId: "inside" });
  await echoed("hello");
  assert.equal(line("tunnel opened")[0]?.["innerTls"], true);
});

test("new credentials are proved beside the link, whose streams go on", async (t) => {
  const { start, line, world, lines } = await behindBox(t);
  const files = { agentCert: world.dir.file("mine.crt"), agentKey: world.dir.file("mine.key") };
  const renew = async () => {
    const { cert, key } = await world.pki.clusterAuthority.issue({ cn: "culvert-agent", usage: "client" });
    await writeFile(files.agentKey, key);
    await writeFile(files.agentCert, cert);
  };
  await renew();
  await start(files);
  await using connection = await world.connect("echo");
  await connection.send("before ");
  assert.equal(await connection.read(), "before ");
  await renew();
  await waitFor(() => line("uplink moved to a new connection").length > 0, { deadlineMs: 10_000 });
  await connection.send("after");
  assert.equal(await connection.read(), "after");
  assert.equal(line("tunnel opened").length, 1);
  assert.deepEqual(
    lines.filter(({ level }) => level === "warn" || level === "error").filter(({ msg }) => /refused|failed/.test(msg)),
    [],
  );
});

const names = { agentId: "agent-1", instance: "x", software: "box" };

interface SeenHello {
  readonly resume?: Readonly<Record<string, unknown>>;
}

/** The first messages of agents, as the box has read them. */
function outerHellos(box: Middlebox): SeenHello[] {
  return box.opened.flatMap(({ sent }) => {
    const [first] = messagesIn(Buffer.concat(sent));
    return first === undefined || first.length === 0 ? [] : [JSON.parse(first.toString()) as SeenHello];
  });
}

/** A connection of the box's own, with a hello that it has made. */
function sayHello(box: Middlebox, port: number, hello: object): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const ws = new WebSocket(`wss://127.0.0.1:${port}${TUNNEL_PATH}`, [SUBPROTOCOL], {
      createConnection: () => box.dial(port),
      perMessageDeflate: false,
    });
    ws.on("error", reject);
    ws.once("open", () => {
      ws.send(JSON.stringify(hello));
      resolve(ws);
    });
  });
}

function closeOf(ws: WebSocket): Promise<{ readonly code: number; readonly words: string }> {
  const closed = new Promise<{ code: number; words: string }>((resolve) => {
    ws.once("close", (code, words) => resolve({ code, words: words.toString() }));
  });
  return within(closed, 5_000, "the server's refusal");
}

function messages(box: Middlebox): Buffer {
  return Buffer.concat(
    box.opened.flatMap(({ sent, answered }) => [sent, answered].flatMap((half) => messagesIn(Buffer.concat(half)))),
  );
}
