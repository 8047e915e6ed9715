import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import { createPki } from "../../cli/pki/pki.ts";
import { connectThrough } from "../harness/caller.ts";
import { type Distance, DistantNetwork, HERE } from "../harness/distant-network.ts";
import { PeerFiles } from "../harness/peer-files.ts";
import { agentFiles, flags, serverFiles } from "../harness/pki-files.ts";
import { MAIN, RUNTIME, requireBuilt } from "../harness/processes.ts";
import { TempDir } from "../harness/temp.ts";
import { missing, missingTun } from "../proxies/harness/missing.ts";

const skip = missing("nats-server", "go") || missingTun();
const PORTS = { nats: 4222, agents: 8091, peers: 8096, pac: 8080, echo: 7 };

/** A target, and the server of a PAC script. */
const SERVICES = `
require("node:net").createServer((socket) => socket.pipe(socket)).listen(${PORTS.echo}, "${HERE}");
require("node:http").createServer((_, answer) => answer.end('function FindProxyForURL() { return "DIRECT"; }'))
  .listen(${PORTS.pac}, "${HERE}", () => console.log("services listen"));`;

before(requireBuilt);

/** Servers of a directory have this time for an answer, so that NATS is nearer than that. */
const FARTHEST_NATS_MS = 1_000;

describe("names with a second address that leads nowhere: NATS, PAC, server and target are reached", {
  concurrency: true,
  skip,
}, () => {
  for (const rttMs of [320, 1_100]) {
    for (const losesSyn of [false, true]) {
      const title = `${rttMs} ms away${losesSyn ? ", and each connection loses a SYN" : ""}`;
      test(title, () => allAreReached({ rttMs, losesSyn }));
    }
  }
});

async function allAreReached(distance: Distance): Promise<void> {
  using dir = new TempDir();
  await createPki({ dir: dir.path, clusterNames: ["server.test"] });
  const nats = distance.rttMs < FARTHEST_NATS_MS ? "nats.test" : HERE;
  const names = ["nats.test", "pac.test", "server.test", "target.test"];
  await using network = await DistantNetwork.create(names, distance);
  const { inside } = network;
  const culvert = (name: string, options: Parameters<typeof flags>[0]) =>
    inside.start(name, [RUNTIME, MAIN, name, ...flags(options)]);

  await using services = inside.start("services", [process.execPath, "-e", SERVICES]);
  writeFileSync(dir.file("nats.conf"), `listen: "${HERE}:${PORTS.nats}"\n`);
  await using _nats = inside.start("nats-server", ["nats-server", "-c", dir.file("nats.conf")]);
  await services.waitForLog("services listen");
  const peers = await PeerFiles.create(dir);
  const { clusterCert, clusterKey, clusterCaCert } = serverFiles(dir.path);
  await using server = culvert("server", {
    ...{ serverId: "srv-1", clusterCert, clusterKey, clusterCaCert, udsName: dir.file("callers.sock") },
    ...{ agentPort: PORTS.agents, serverPort: 0, healthPort: 0, adminPort: 0 },
    ...(await peers.flagsOf("srv-1", { peerPort: PORTS.peers }, [`nats://${nats}:${PORTS.nats}`])),
  });
  await using _agent = culvert("agent", {
    ...{ server: `wss://server.test:${PORTS.agents}`, agentId: "node-1", ...agentFiles(dir.path) },
    ...{ pac: `http://pac.test:${PORTS.pac}/proxy.pac`, healthServerPort: 0, adminServerPort: 0 },
  });
  await server.waitForLog("directory connected");
  await server.waitForLog("tunnel opened");
  await using connection = await connectThrough({ path: dir.file("callers.sock") }, `target.test:${PORTS.echo}`);
  assert.equal(connection.status, 200, connection.reason);
  const far = nats === HERE ? 3 : 4;
  assert.ok(!distance.losesSyn || network.lost >= far, `each of the ${far} has lost a SYN`);
}
