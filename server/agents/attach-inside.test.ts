import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { dialOuter } from "../../shared/link/dial.ts";
import { encodeInner, type InnerHello, parseInnerReply } from "../../shared/link/inner-pipe.ts";
import { dialInner, UntrustedLink } from "../../shared/link/inner-tls.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import type { Server } from "../server.ts";
import { pki, start } from "../testing/server.ts";
import { Tenants } from "../testing/tenants.ts";

const HELLO: InnerHello = { type: "hello", version: 1, agentId: "a", instance: "1", software: "test" };

interface Names {
  readonly outside: string;
  readonly inside: string;
  readonly ca: string;
  readonly by: Partial<CertificateAndKey>;
}

/** Inner TLS with this server, of which nothing is known outside; certificate and key are shown inside. */
async function insideOf(server: Server, names?: Names, through = server.addresses.agents?.port ?? 0) {
  const { outside, inside, ca, by } = names ?? {
    ...{ outside: "localhost", inside: "localhost", ca: pki.ca.cert, by: pki.agent },
  };
  const port = server.addresses.agents?.port ?? 0;
  const { carrier, remote } = await dialOuter({
    ...{ host: outside, port, address: { host: "127.0.0.1", port: through }, path: "/culvert/v1/tunnel" },
    ...{ tls: { ca }, keepaliveMs: 20_000, timeoutMs: 5_000 },
  });
  const link = new UntrustedLink(remote, carrier, { replayBytes: 1024 * 1024 });
  // As if one certificate were good for all clusters.
  const tls = { ca, ...by, checkServerIdentity: () => undefined };
  const { signal } = new AbortController();
  return dialInner(link, { host: inside, tls, timeoutMs: 5_000, signal });
}

/** A path to the agents' port on which, when told, nothing gets back to the agent any more. */
async function deafPath(server: Server) {
  const sockets: Socket[] = [];
  let isCut = false;
  const relay = createServer((near) => {
    const far = connect({ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1" });
    for (const socket of [near, far]) sockets.push(socket.on("error", () => {}));
    far.once("close", () => {
      isCut = true;
    });
    near.pipe(far).pipe(near);
  });
  relay.listen(0, "127.0.0.1");
  await once(relay, "listening");
  return {
    port: (relay.address() as AddressInfo).port,
    isCut: () => isCut,
    deafen: () => {
      for (const socket of sockets) if (socket.remotePort === server.addresses.agents?.port) socket.unpipe().resume();
    },
    [Symbol.dispose]: () => {
      relay.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

const refused = (server: { lines: readonly { msg: string }[] }) =>
  server.lines.filter(({ msg }) => msg === "agent refused").map((line) => String(Reflect.get(line, "reason")));

test("who says nothing inside is not waited for, nor who says too much", async () => {
  await using server = await start({ innerTls: "auto", handshakeTimeoutMs: 1_000 });
  const silent = await insideOf(server);
  const unanswered = assert.rejects(silent.pipe.readMessage());
  await until(() => refused(server).length === 1);
  await unanswered;
  const loud = await insideOf(server);
  loud.socket.write(Buffer.concat([Buffer.from([0xff, 0xff]), Buffer.alloc(40 * 1024)]));
  await assert.rejects(loud.pipe.readMessage());
  await until(() => refused(server).length === 2);
  assert.match(refused(server).join(), /no hello came inside the inner TLS,too many bytes came/);
});

test("what is wrong with the words inside is said inside", async () => {
  await using server = await start({ innerTls: "auto" });
  const wrong: [Buffer, RegExp][] = [
    [encodeInner({ ...HELLO, agentId: "" }), /4400.*bad inner hello: agentId/],
    [encodeInner({ ...HELLO, cluster: "green" }), /belongs to cluster "default", not to "green"/],
    [encodeInner({ ...HELLO, renews: "srv-1/none" }), /4404.*has no such link any more/],
    [encodeInner({ ...HELLO, renews: "other/1" }), /4421.*another server's/],
  ];
  for (const [words, reason] of wrong) {
    const { socket, pipe } = await insideOf(server);
    socket.write(words);
    const answer = await pipe.readMessage();
    assert.throws(() => parseInnerReply(answer), reason);
  }
});

test("who is refused inside and never answers our close is cut when its time is over", async () => {
  await using server = await start({ innerTls: "auto", handshakeTimeoutMs: 2_000 });
  using path = await deafPath(server);
  const { socket } = await insideOf(server, undefined, path.port);
  path.deafen();
  socket.write(encodeInner({ ...HELLO, agentId: "" }));
  await until(() => refused(server).length === 1);
  await until(() => path.isCut());
});

test("a peer that measures may come by inner TLS as well", async () => {
  await using server = await start({ innerTls: "auto" });
  const { pipe } = await insideOf(server);
  pipe.sendMessage({ ...HELLO, probe: true });
  const answer = parseInnerReply(await pipe.readMessage());
  assert.equal(answer.type === "welcome" && answer.graceMs, 0);
  const cluster = server.tunnels.clusters.get("default") ?? assert.fail();
  await until(() => cluster.tunnels().size === 1);
  assert.equal(cluster.pick(), undefined);
  pipe.destroy();
});

test("a middlebox that leads the agent of one cluster to another one's listener gets no tunnel there", async () => {
  await using tenants = await Tenants.create([], ["blue", "green"]);
  const green = tenants.get("green");
  await green.write({ agents: { innerTls: "auto" } });
  const server = await tenants.start();
  const names = { outside: green.sni, ca: green.authority.cert, by: green.agent };
  const astray = await insideOf(server, { ...names, inside: tenants.get("blue").sni });
  astray.pipe.sendMessage(HELLO);
  const answer = await astray.pipe.readMessage();
  assert.throws(() => parseInnerReply(answer), /4403.*cluster "green".*"blue.example" was asked for/);
  const right = await insideOf(server, { ...names, inside: "GREEN.example." });
  right.pipe.sendMessage(HELLO);
  assert.equal(parseInnerReply(await right.pipe.readMessage()).type, "welcome");
  right.pipe.destroy();
});

test("who shows nothing inside hides no refusal of one who brings a certificate there", async () => {
  await using server = await start({ innerTls: "auto" });
  const inside = async (by: Names["by"]) => {
    const { pipe } = await insideOf(server, { outside: "localhost", inside: "localhost", ca: pki.ca.cert, by });
    pipe.sendMessage(HELLO);
    const answer = await pipe.readMessage();
    assert.throws(() => parseInnerReply(answer), /401/);
    pipe.destroy();
  };
  await Promise.all(Array.from({ length: 11 }, () => inside({})));
  await until(() => refused(server).length === 11);
  await inside(await pki.other.issue({ cn: "konnectivity-agent", usage: "client" }));
  await until(() => refused(server).length === 12);
  assert.deepEqual(
    server.lines.filter(({ msg }) => msg === "agent refused").map((line) => [line.level, line["code"]]),
    [...Array.from({ length: 10 }, () => "warn"), "debug", "warn"].map((level) => [level, 401]),
  );
});
