import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe, test } from "node:test";
import { createPki } from "../../cli/pki/pki.ts";
import { AT_NODE, CONTROL_PLANE, NodeNetwork, PODS } from "../harness/node-network.ts";
import { agentFiles, type Flags, flags, serverFiles } from "../harness/pki-files.ts";
import { MAIN, RUNTIME, requireBuilt } from "../harness/processes.ts";
import type { Program } from "../harness/program.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";
import type { Namespace } from "../kubernetes/world/namespace.ts";
import { missing } from "../proxies/harness/missing.ts";

const skip = missing("setpriv");
/** Where the stand-in of kube-apiserver listens: on the control plane's own loopback. */
const [KAS_PORT, NODE_PORT, AGENTS] = [6_444, 6_443, 8_091];
const REPAIRED_MS = 10_000;
/** Of curl: the connection was reset before its connect() was over, during the TLS handshake, or behind it. */
const RESET: readonly number[] = [7, 35, 56];

/** TLS, as kube-apiserver speaks it; it answers with the address that the client comes from. */
const STAND_IN = `
const [cert, key] = process.argv.slice(1).map((file) => require("node:fs").readFileSync(file));
require("node:https").createServer({ cert, key }, (request, response) => {
  response.end("version for " + request.socket.remoteAddress);
}).listen(${KAS_PORT}, "127.0.0.1", () => console.log("listening"));`;

/** A server beside the stand-in, and agents of the node. */
class Site implements AsyncDisposable {
  readonly network: NodeNetwork;
  readonly #dir = new TempDir();
  readonly #programs: Program[] = [];

  constructor(network: NodeNetwork) {
    this.network = network;
  }

  async start(): Promise<void> {
    requireBuilt();
    const { path } = this.#dir;
    await createPki({ dir: path, clusterNames: [CONTROL_PLANE, AT_NODE] });
    const { clusterCert, clusterKey } = serverFiles(path);
    const inside = this.network.controlPlane;
    const standIn = this.#add(inside.start("kas", [process.execPath, "-e", STAND_IN, clusterCert, clusterKey]));
    const ports = { agentPort: AGENTS, healthPort: 0, adminPort: 0, udsName: this.#dir.file("s") };
    const server = this.#culvert(inside, "server", {
      ...ports,
      ...serverFiles(path),
      serverPort: 0,
      serverCert: "",
      serverKey: "",
      allowedDestination: `127.0.0.1:${KAS_PORT}`,
    });
    await Promise.all([standIn.waitForLog("listening"), server.waitForLog("server started")]);
  }

  /** `without`: a capability that it does not have. */
  startAgent(more: Flags = {}, without?: string): Program {
    const options = {
      ...{ proxyServerHost: CONTROL_PLANE, proxyServerPort: AGENTS, healthServerPort: 0, adminServerPort: 0 },
      ...agentFiles(this.#dir.path),
      ...{ bindAddress: AT_NODE, target: `${NODE_PORT}:127.0.0.1:${KAS_PORT}`, interface: "lo", bindAllowSource: PODS },
      ...more,
    };
    const before = without === undefined ? [] : ["setpriv", `--bounding-set=-${without}`, `--inh-caps=-${without}`];
    return this.#culvert(this.network.node, "agent", options, before);
  }

  #culvert(inside: Namespace, command: string, options: Flags, before: readonly string[] = []): Program {
    const argv = [...before, RUNTIME, MAIN, command, ...flags(options)];
    return this.#add(inside.start(`culvert ${command}`, argv));
  }

  #add(program: Program): Program {
    this.#programs.push(program);
    return program;
  }

  /** As a kubelet or a pod asks. */
  async curl(from: Namespace): Promise<{ readonly code: number; readonly text: string }> {
    const { caCert } = agentFiles(this.#dir.path);
    const url = `https://${AT_NODE}:${NODE_PORT}/version`;
    const { code, stdout } = await from.run(["curl", "-sS", "-m", "5", "--cacert", caCert, url]);
    return { code: code ?? -1, text: stdout };
  }

  async served(from: Namespace, deadlineMs: number): Promise<void> {
    const ok = async () => (await this.curl(from)).text === "version for 127.0.0.1";
    await waitFor(ok, { deadlineMs, everyMs: 100, what: "an answer of the control plane" });
  }

  async addressesOfNode(): Promise<string> {
    return (await this.network.node.must(["ip", "-o", "address", "show", "dev", "lo"])).stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.kill()));
    this.#dir[Symbol.dispose]();
  }
}

/** Not every kernel has dummy interfaces. */
const hasDummy =
  skip === false && spawnSync("unshare", ["--net", "ip", "link", "add", "d0", "type", "dummy"]).status === 0;

describe("a node without a route to its control plane", { skip, concurrency: 1 }, () => {
  test("reaches it, as its pods do, and a neighbour with a route through the node does not", async () => {
    await using network = await NodeNetwork.create();
    await using site = new Site(network);
    await site.start();
    assert.notEqual((await site.curl(network.node)).code, 0, "there is no other way");
    const agent = site.startAgent();
    await agent.waitForLog("uplink connected");
    await site.served(network.node, REPAIRED_MS);
    await site.served(network.pod, REPAIRED_MS);
    assert.ok(RESET.includes((await site.curl(network.neighbour)).code));
    await agent.waitForLog("10.94.3.2 is neither an address of this node nor in --bind-allow-source");

    assert.match(await site.addressesOfNode(), /100\.64\.30\.10\/32 scope host/);
    await network.node.must(["ip", "address", "delete", `${AT_NODE}/32`, "dev", "lo"]);
    await site.served(network.node, REPAIRED_MS);
    await agent.waitForLog("the address was removed: added it again");
    await agent.stop();
    assert.doesNotMatch(await site.addressesOfNode(), /100\.64\.30\.10/);
  });

  test("has the address on an interface of the agent's own, which comes back", { skip: !hasDummy }, async () => {
    await using network = await NodeNetwork.create();
    await using site = new Site(network);
    await site.start();
    const agent = site.startAgent({ interface: "dummy" });
    await agent.waitForLog("uplink connected");
    await site.served(network.pod, REPAIRED_MS);
    await network.node.must(["ip", "link", "delete", "culvert0"]);
    await site.served(network.pod, REPAIRED_MS);
    await agent.stop();
    assert.notEqual((await network.node.run(["ip", "link", "show", "culvert0"])).code, 0);
  });

  test("says what it needs where it may not add an address, and takes one that is there", async () => {
    await using network = await NodeNetwork.create();
    await using site = new Site(network);
    await site.start();
    const refused = site.startAgent({}, "net_admin");
    assert.equal(await refused.exited, "exit code 2");
    assert.match(refused.tail(), /Cannot add 100\.64\.30\.10 to lo: .*not permitted.*NET_ADMIN.*--interface none/s);
    const absent = site.startAgent({ interface: "none" }, "net_admin");
    assert.equal(await absent.exited, "exit code 2");
    assert.match(absent.tail(), /does not have the address.*--interface lo/s);
    await network.node.must(["ip", "address", "add", `${AT_NODE}/32`, "dev", "lo", "scope", "host"]);
    const agent = site.startAgent({ interface: "none" }, "net_admin");
    await agent.waitForLog("uplink connected");
    await site.served(network.pod, REPAIRED_MS);
    await agent.stop();
    assert.match(await site.addressesOfNode(), /100\.64\.30\.10/, "it was not the agent's");
  });
});
