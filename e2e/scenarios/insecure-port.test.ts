import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { startAgent } from "../../agent/agent.ts";
import { agentOptions } from "../../agent/context/options.ts";
import { Balancer } from "../../server/testing/balancer.ts";
import { Tenants } from "../../server/testing/tenants.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

/**
 * Messages of unauthenticated peers on the port without TLS, while two agents carry streams from the first test to the
 * last: one that came there, by inner TLS behind a balancer, and one on the port with TLS.
 */
const HANDSHAKE_TIMEOUT_MS = 1_000;
const BOUND = 16;
let world: World<"echo">;
let balancer: Balancer;
let steadyCallers: SteadyCaller[];
let lines: LogLine[];

before(async () => {
  const captured = captureLog("debug");
  lines = captured.lines;
  world = await startWorld({
    ...{ agents: 0, targets: ["echo"], log: captured.log },
    server: {
      ...{ innerTls: "auto", agentInsecureTrustedCidrs: ["127.0.0.0/8"], handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS },
      ...{ maxHandshakes: BOUND, maxWaitingHandshakes: BOUND, maxWaitingConnections: BOUND },
    },
  });
  balancer = await Balancer.start(insecurePort(), ["127.0.0.1"]);
  const outerCa = world.dir.file("balancer.crt");
  await writeFile(outerCa, balancer.authority.cert);
  // A stream for each: the second goes to the agent that has none.
  await world.startAgent({ proxyServerPort: balancer.port, outerCa });
  await world.startAgent();
  steadyCallers = [new SteadyCaller(await world.connect("echo")), new SteadyCaller(await world.connect("echo"))];
  assert.deepEqual(
    [...world.server.tunnels.tunnels()].map(({ streamCount }) => streamCount),
    [1, 1],
  );
});

after(async () => {
  try {
    for (const steadyCaller of steadyCallers) await steadyCaller.assertUnharmed();
    assert.deepEqual(
      lines.filter(({ level }) => level === "error" || level === "fatal"),
      [],
    );
    for (const agent of ["agent-1", "agent-2"]) {
      const opened = lines.filter((line) => line.msg === "tunnel opened" && line["agent"] === agent);
      assert.equal(opened.length, 1, "it was one link all the time");
    }
  } finally {
    for (const steadyCaller of steadyCallers) await steadyCaller[Symbol.asyncDispose]();
    await balancer[Symbol.asyncDispose]();
    await world[Symbol.asyncDispose]();
  }
});

function insecurePort(): number {
  return world.server.addresses["agents-insecure"]?.port ?? assert.fail("the port is off");
}

/** An unauthenticated peer, and what it receives until its end. */
function unauthenticatedPeer(): { readonly socket: Socket; readonly received: Promise<string> } {
  const socket = connect({ port: insecurePort(), host: "127.0.0.1" }).on("error", () => {});
  const reads: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => reads.push(chunk));
  const closed = new Promise((resolve) => socket.on("close", resolve));
  return { socket, received: closed.then(() => Buffer.concat(reads).toString("latin1")) };
}

const HEAD = "GET /culvert/v1/tunnel HTTP/1.1\r\nHost: x\r\n";
const HOSTILE: readonly [what: string, say: (socket: Socket) => void, hears: RegExp][] = [
  ["random bytes", (socket) => socket.write(randomBytes(4_096)), /^HTTP\/1\.1 400 /],
  ["a TLS record that never ends", (socket) => socket.write(Buffer.from("16030102000100", "hex")), /^HTTP\/1\.1 400 /],
  ["a header without end", (socket) => socket.write(`${HEAD}X: ${"x".repeat(1 << 20)}`), /^HTTP\/1\.1 431 |^$/],
  ["thousands of headers", (socket) => socket.write(`${HEAD}${"a: b\r\n".repeat(9_000)}`), /^HTTP\/1\.1 431 |^$/],
  [
    "a body of a gigabyte",
    (socket) => endless(socket, `${HEAD}Content-Length: 1073741824\r\n\r\n`),
    /^HTTP\/1\.1 4\d\d |^$/,
  ],
  ["a thousand requests at once", (socket) => socket.write(`${HEAD}\r\n`.repeat(1_000)), /^HTTP\/1\.1 4\d\d /],
  ["nothing", () => {}, /^$/],
];
for (const [what, say, hears] of HOSTILE) {
  test(`whoever says ${what} gets a refusal or nothing, and is gone`, async () => {
    const { socket, received } = unauthenticatedPeer();
    say(socket);
    assert.match(await within(received, 10_000, "the end of an unauthenticated peer"), hears);
  });
}

function endless(socket: Socket, head: string): void {
  socket.write(head);
  const more = () => {
    while (!socket.destroyed && socket.write(Buffer.alloc(65_536)));
  };
  socket.on("drain", more);
  more();
}

test("a header that comes a byte at a time is cut at the deadline, however lively it is", async () => {
  const { socket, received } = unauthenticatedPeer();
  const timer = setInterval(() => socket.write("x"), 20);
  socket.write(`${HEAD}X: `);
  assert.equal(await within(received, 10_000, "the end of a slow one"), "");
  clearInterval(timer);
});

test("a header that comes a byte at a time, and in time, is read as one", async () => {
  const { socket, received } = unauthenticatedPeer();
  for (const byte of "GET / HTTP/1.1\r\nHost: x\r\n\r\n") {
    socket.write(byte);
    await pause(2);
  }
  assert.match(await within(received, 10_000, "the answer"), /^HTTP\/1\.1 (?:401|404|426) /);
});

for (const [what, words] of [
  ["silent", ""],
  ["half-said", HEAD],
] as const) {
  test(`a flood of ${what} connections stays within its bounds, and agents still come in on both ports`, async () => {
    const flood = Array.from({ length: 400 }, () => unauthenticatedPeer());
    for (const { socket } of flood) socket.write(words);
    const open = () => flood.filter(({ socket }) => !socket.destroyed).length;
    await waitFor(() => open() <= 3 * BOUND, { what: "the bound" });
    const outerCa = world.dir.file("balancer.crt");
    const agents = [
      await world.startAgent({ agentId: `${what}-1`, proxyServerPort: balancer.port, outerCa }),
      await world.startAgent({ agentId: `${what}-2` }),
    ];
    for (const { socket } of flood) socket.destroy();
    for (const agent of agents) await agent.close();
  });
}

// ── many clusters ────────────────────────────────────────────────────────────────────────────────────────────────────

test("whose inner identity is another cluster's than the Host's is refused inside, also under a CA that both share", async (t) => {
  await using tenants = await Tenants.create(["blue"], ["gold", "lime"]);
  for (const name of ["blue", "gold", "lime"]) await tenants.get(name).write({ agents: { innerTls: "auto" } });
  const server = await tenants.start({ agentInsecureTrustedCidrs: ["127.0.0.0/8"] });
  const names = ["blue", "gold", "lime"].map((name) => `${name}.example`);
  await using front = await Balancer.start(server.addresses["agents-insecure"]?.port ?? 0, names);
  const file = async (name: string, text: string) => {
    await writeFile(join(tenants.folder, name), text);
    return join(tenants.folder, name);
  };
  const outerCa = await file("front.ca", front.authority.cert);
  /** An agent with the certificate of one cluster at the name of another. */
  const meet = async (as: string, at: string) => {
    const { agent: pair } = tenants.get(as);
    const { log, lines: said } = captureLog();
    const agent = await startAgent(
      {
        ...defaultsOf(agentOptions),
        allowLoopback: true,
        ...{ agentId: "a", healthServerPort: 0, adminServerPort: 0 },
        ...{ proxyServerHost: `${at}.example`, proxyServerPort: 443, serverAddress: `127.0.0.1:${front.port}` },
        ...{ caCert: join(tenants.folder, `${at}.ca`), outerCa },
        ...{ agentCert: await file(`${as}-a.crt`, pair.cert), agentKey: await file(`${as}-a.key`, pair.key) },
      },
      { log },
    );
    t.after(() => agent.destroy(new Error("the test is over")));
    return { agent, said };
  };
  for (const [as, at, why] of [
    ["blue", "lime", /not signed by a CA/],
    ["gold", "lime", /not among agents\.identities/],
  ] as const) {
    const { agent, said } = await meet(as, at);
    const refused = await waitFor(() => said.find(({ msg }) => msg.startsWith("uplink refused")));
    assert.match(String(refused["reason"]), why);
    agent.destroy(new Error("seen"));
  }
  const { agent } = await meet("gold", "gold");
  await within(agent.whenConnected(), 10_000, "the agent at its own cluster");
  assert.deepEqual(
    server.lines.filter(({ msg }) => msg === "tunnel opened").map(({ cluster, innerTls }) => [cluster, innerTls]),
    [["gold", true]],
  );
});
