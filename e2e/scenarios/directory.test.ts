import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { issuingAuthority } from "../../shared/pki/testing/chains.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { startRelay } from "../harness/faults.ts";
import { FleetWorld } from "../harness/fleet-world.ts";
import { natsOperator } from "../harness/nats-credentials.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const skip = missingProgram("nats-server");
const NAMES = ["a", "b", "c"];

/** The configuration of NATS on the page for operators, without its port. */
function permissionsOfPage(): string {
  const page = readFileSync(join(ROOT, "docs/fleet.md"), "utf8");
  const [, config = assert.fail("the page has no configuration of NATS")] =
    /^```nats\n([\s\S]*?)^```$/m.exec(page) ?? [];
  return config.replace(/^listen: .*\n/m, "");
}

/** Sends these lines of NATS's protocol, and resolves with the refusals of NATS. */
async function forbiddenBy(nats: NatsServers, lines: readonly string[]): Promise<string[]> {
  const socket = connect(Number(new URL(nats.urls()[0] ?? "").port), "127.0.0.1");
  const user = JSON.stringify({ user: "culvert", pass: "PASSWORD", verbose: false, pedantic: false });
  socket.write(`${[`CONNECT ${user}`, ...lines, "PING"].join("\r\n")}\r\n`);
  let said = "";
  for await (const chunk of socket) {
    said += String(chunk);
    if (/^PONG\r$/m.test(said)) break; // it answers in order, and the loop closes the socket
  }
  return [...said.matchAll(/^-ERR 'Permissions Violation for (.*)'/gm)].map(([, what = ""]) => what);
}

test("with NATS as the directory any server reaches the agent; without NATS its own server does, and all comes back by itself", {
  skip,
}, async () => {
  using dir = new TempDir();
  const config = permissionsOfPage();
  await using nats = await NatsServers.start({ dir: dir.path, config });
  await using fleet = await FleetWorld.start(NAMES, (folder) => {
    writeFileSync(join(folder, "nats"), "culvert:PASSWORD\n");
    return { directory: nats.urls(), directoryCredentials: join(folder, "nats") };
  });
  await fleet.untilConnected(...NAMES);
  assert.deepEqual(
    await forbiddenBy(nats, ["SUB > 1", "SUB culvert.v1.cluster.x 2", "SUB _INBOX.x 3", "PUB other 0\r\n"]),
    ['Subscription to ">"', 'Publish to "other"'],
  );
  await fleet.startAgent("c");
  const open = await fleet.echo("a");
  await fleet.echo("c");

  await nats.kill();
  await waitFor(async () => /not connected for/.test((await fleet.readiness("b")).line));
  await fleet.echo("c");
  assert.equal((await fleet.readiness("c")).status, 200, "agents of this server work");
  await open.send("still here");
  assert.equal((await open.readBytes(10, 5_000)).toString(), "still here");
  await fleet.echo("a"); // it has asked a moment ago
  const refused = await fleet.connect("b");
  assert.equal(refused.status, 503);
  assert.match(refused.reason, /other servers cannot be found: the directory is not reachable/);

  await nats.start();
  await waitFor(() => fleet.reaches("b"), { deadlineMs: 10_000 });
});

/** Of a CA of NATS alone: its servers and their clients know each other by it. */
async function natsCertificates(dir: TempDir) {
  const authority = await issuingAuthority("nats");
  const server = await authority.issue({ cn: "nats", names: ["127.0.0.1"], usage: "server" });
  const client = await authority.issue({ cn: "culvert", usage: "client" });
  const write = (name: string, content: string): string => {
    writeFileSync(dir.file(name), content);
    return dir.file(name);
  };
  return {
    ...{ ca: write("nats-ca.crt", authority.cert), cert: write("nats.crt", server.cert) },
    ...{ key: write("nats.key", server.key), clientCert: write("c.crt", client.cert) },
    clientKey: write("c.key", client.key),
  };
}

test("three NATS servers in a cluster: one that is killed is replaced by another, and a dead server's agents are found elsewhere", {
  skip,
}, async () => {
  using dir = new TempDir();
  const files = await natsCertificates(dir);
  const tls = `tls { cert_file: "${files.cert}", key_file: "${files.key}", ca_file: "${files.ca}", verify: true }`;
  await using nats = await NatsServers.start({ dir: dir.path, count: 3, config: tls });
  await using fleet = await FleetWorld.start(NAMES, () => ({
    ...{ directory: nats.urls("tls"), directoryCaCert: files.ca },
    ...{ directoryCert: files.clientCert, directoryKey: files.clientKey },
  }));
  await fleet.untilConnected(...NAMES);
  await fleet.startAgent("b");
  await waitFor(() => fleet.reaches("a"), { deadlineMs: 10_000 });

  const through = (await fleet.readiness("a")).line;
  await nats.kill(nats.numberOf(/127\.0\.0\.1:\d+/.exec(through)?.[0] ?? ""));
  await fleet.untilConnected("a");
  await fleet.echo("a");

  // Its location is still remembered at the server that the caller comes to.
  fleet.server("b").destroy(new Error("killed by the test"));
  await fleet.startAgent("c");
  await waitFor(() => fleet.reaches("a"), { deadlineMs: 10_000 });
});

test("with a .creds file: a path between two servers that is cut costs no stream, and one that stays cut costs an error in time", {
  skip,
}, async () => {
  using dir = new TempDir();
  const { config, creds } = natsOperator();
  writeFileSync(dir.file("creds"), creds);
  await using nats = await NatsServers.start({ dir: dir.path, config });
  await using fleet = await FleetWorld.start(["a"], () => ({
    ...{ directory: nats.urls(), directoryCredentials: dir.file("creds") },
  }));
  const peerPort = await freePort();
  await using relay = await startRelay({ host: "127.0.0.1", port: peerPort });
  await fleet.startServer("b", { peerPort, peerAddress: `127.0.0.1:${relay.port}` });
  await fleet.untilConnected("a", "b");
  await fleet.startAgent("b");
  const open = await fleet.echo("a");

  relay.cut("rst");
  await open.send("after the cut");
  assert.equal((await open.readBytes(13, 10_000)).toString(), "after the cut");
  assert.ok(fleet.lines.some(({ msg, peer }) => msg === "peer link resumed" && peer === "b"));

  // A port that refuses is that of a process which has ended; here the path leads nowhere.
  relay.leadTo({ host: "127.0.0.1", port: await freePort() });
  relay.cut("rst");
  const refused = await fleet.connect("a");
  assert.equal(refused.status, 502);
  assert.match(refused.reason, /^(the connection to server "b" from server "a" was lost|server "b" cannot be reached)/);
  relay.leadTo({ host: "127.0.0.1", port: peerPort });
  await open.send("after the partition");
  assert.equal((await open.readBytes(19, 10_000)).toString(), "after the partition");
  await waitFor(() => fleet.reaches("a"), { deadlineMs: 10_000 });
});
