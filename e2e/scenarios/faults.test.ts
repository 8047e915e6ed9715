import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { createSite } from "../harness/binaries.ts";
import { connectThrough, dialListener, established } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { SteadyCaller } from "../harness/steady-caller.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

// ── processes that end without a word ────────────────────────────────────────────────────────────────────────────

test("an agent that is killed, without grace: open callers see a reset at once, the other agent's go on, and it takes what is new", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  await using server = await site.startServer({ linkGrace: "0s" });
  await using doomed = await site.startAgent({ agentId: "doomed" });
  const overTls = await established(connectThrough(site.listener("tls"), echo.address));
  const overUds = await established(connectThrough(site.listener("uds"), echo.address));
  await using _other = await site.startAgent({ agentId: "other" });
  await using steadyCaller = new SteadyCaller(await connectThrough(site.listener("uds"), echo.address));

  doomed.signal("SIGKILL");
  const [tls, uds] = await Promise.all([peerEnd(overTls.socket.resume()), peerEnd(overUds.socket.resume())]);
  assert.equal(tls, "ECONNRESET", "TLS: a raw reset, no clean end");
  assert.equal(uds, "fin", "a unix socket knows no reset");

  for (let i = 0; i < 5; i++) {
    await using _next = await established(connectThrough(site.listener("tls"), echo.address));
  }
  await steadyCaller.assertUnharmed();
  assert.equal(server.running, true);
});

// ── paths that fail ──────────────────────────────────────────────────────────────────────────────────────────────

const KEEPALIVE_MS = 200;

// How soon: shared/link/liveness.test.ts.
test("a path that drops everything silently is found at both ends, and the callers are told", async () => {
  const { log, lines } = captureLog();
  await using world = await startWorld({
    ...{ targets: ["echo"], relay: true, log },
    server: { keepaliveMs: KEEPALIVE_MS, linkGraceMs: 0 },
    agent: { keepaliveMs: KEEPALIVE_MS },
  });
  await using caller = await established(world.connect("echo", { via: "tls" }));
  const ended = peerEnd(caller.socket.resume());
  world.relay.drop();
  for (const message of ["tunnel lost", "uplink lost"]) await waitFor(() => lines.some(({ msg }) => msg === message));
  for (const line of lines.filter(({ msg }) => msg === "tunnel lost" || msg === "uplink lost")) {
    assert.match(String(line["reason"]), /nothing was received for \d+\.\d s/);
  }
  assert.equal(await ended, "ECONNRESET");

  world.relay.restore();
  world.relay.cut("rst"); // attempts that were made in the dark
  await waitFor(() => world.agents[0]?.connected, { what: "the agent to be back", deadlineMs: 15_000 });
  await using _again = await established(world.connect("echo"));
});

for (const direction of ["forward", "backward"] as const) {
  test(`a path that drops only what goes ${direction} ends the tunnel at both ends, too`, async () => {
    const { log, lines } = captureLog();
    await using world = await startWorld({ relay: true, log, server: { keepaliveMs: KEEPALIVE_MS, linkGraceMs: 0 } });
    world.relay.drop(direction);
    // One end receives nothing and says so; the other receives the close, or is itself the one that receives nothing.
    for (const message of ["tunnel lost", "uplink lost"]) await waitFor(() => lines.some(({ msg }) => msg === message));
    await waitFor(() => world.server.tunnels.clusters.get("default")?.tunnels().size === 0);
  });
}

for (const how of ["fin", "rst"] as const) {
  test(`a path that is cut by ${how.toUpperCase()}, without grace: callers are reset, the agent is back, new CONNECTs go through`, async () => {
    await using world = await startWorld({ targets: ["echo"], relay: true, server: { linkGraceMs: 0 } });
    await using caller = await established(world.connect("echo", { via: "tls" }));
    const ended = peerEnd(caller.socket.resume());
    world.relay.cut(how);
    assert.equal(await ended, "ECONNRESET");
    await using again = await world.connect("echo");
    assert.equal(again.status, 200, again.reason); // --agent-wait covers the reconnect
  });
}

// ── unauthenticated peers ────────────────────────────────────────────────────────────────────────────────────────

const DEADLINE_MS = 300;
/** Another deadline would cut them then (10 s). */
const NEXT_DEADLINE_MS = 9_000;
const HASTY = { handshakeTimeoutMs: DEADLINE_MS, headerTimeoutMs: DEADLINE_MS, helloTimeoutMs: DEADLINE_MS } as const;

interface UnauthenticatedPeer {
  readonly dial: (world: World<"echo">) => Socket;
  /** Bytes that are sent at once, and repeatedly as long as the connection is open. */
  readonly first?: string | Buffer;
  readonly drip?: string | Buffer;
  /** The answer, if there is one. */
  readonly receives?: RegExp;
}

const HANDSHAKE_BEGUN = Buffer.from("1603010200010001fc0303", "hex");

const UNAUTHENTICATED: Readonly<Record<string, UnauthenticatedPeer>> = {
  "a connection to the callers' port that never says anything": { dial: toPort("callers") },
  "a TLS handshake with the callers' port that never ends": { dial: toPort("callers"), first: HANDSHAKE_BEGUN },
  "a TLS handshake with the agents' port that goes on byte by byte": {
    ...{ dial: toPort("agents"), first: HANDSHAKE_BEGUN, drip: Buffer.alloc(1) },
  },
  "a caller that shakes hands and never asks": { dial: toCallers("tls"), receives: /^HTTP\/1\.1 408 / },
  "a caller whose header comes byte by byte": {
    ...{ dial: toCallers("tls"), first: "CONNECT 10.0.0.1:1 HTTP/1.1\r\nX: ", drip: "x", receives: /^HTTP\/1\.1 408 / },
  },
  "a unix socket that never asks": { dial: toCallers("uds"), receives: /^HTTP\/1\.1 408 / },
  "a unix socket whose header comes byte by byte": {
    ...{ dial: toCallers("uds"), first: "CONNECT 10.0.0.1:1 HTTP/1.1\r\nX: ", drip: "x", receives: /^HTTP\/1\.1 408 / },
  },
};

test("those who never come to the end of a handshake or a request are cut at the deadline, and nobody else notices", async () => {
  await using world = await startWorld({ targets: ["echo"], server: HASTY });
  await using steadyCaller = new SteadyCaller(await world.connect("echo", { via: "tls" }));
  const isCut = async ([what, { dial, first, drip, receives }]: [string, UnauthenticatedPeer]) => {
    const peer = dial(world);
    const received: Buffer[] = [];
    peer.on("error", () => {}).on("data", (chunk: Buffer) => received.push(chunk));
    await opened(peer);
    const openedAt = performance.now();
    if (first !== undefined) peer.write(first);
    const timer = setInterval(() => drip !== undefined && peer.writable && peer.write(drip), 20);
    try {
      await within(ending(peer), 15_000, `the end of ${what}`);
    } finally {
      clearInterval(timer);
    }
    const cutMs = performance.now() - openedAt;
    assert.ok(cutMs >= DEADLINE_MS - 20 && cutMs < NEXT_DEADLINE_MS, `${what}: ${cutMs} ms`);
    assert.match(Buffer.concat(received).toString("latin1"), receives ?? /^$/, what);
  };
  await Promise.all(Object.entries(UNAUTHENTICATED).map(isCut));
  await steadyCaller.assertUnharmed();
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

function toPort(name: "callers" | "agents"): (world: World<"echo">) => Socket {
  return (world) => connect({ port: world.server.addresses[name]?.port ?? 0, host: "127.0.0.1" });
}

function toCallers(via: "uds" | "tls"): (world: World<"echo">) => Socket {
  return (world) => dialListener(world.listener(via));
}

/** Through TLS, where there is some. */
async function opened(socket: Socket): Promise<void> {
  if ("encrypted" in socket) await once(socket, "secureConnect");
  else if (socket.connecting) await once(socket, "connect");
}

/** Resolves when the peer has ended or cut the connection. */
function ending(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on("end", () => {
      socket.destroy();
      resolve();
    });
    socket.on("close", () => resolve());
  });
}
