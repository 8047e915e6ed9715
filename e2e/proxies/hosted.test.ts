import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createPki, type Pki } from "../../cli/pki/pki.ts";
import { CONTROL_PLANE, NodeNetwork, POD, PODS } from "../harness/node-network.ts";
import { agentFiles, type Flags, flags, serverFiles } from "../harness/pki-files.ts";
import { MAIN, RUNTIME, requireBuilt } from "../harness/processes.ts";
import type { Program } from "../harness/program.ts";
import { callerFiles } from "../harness/sidecar.ts";
import { started } from "../harness/started.ts";
import { TempDir } from "../harness/temp.ts";
import { writeSettings } from "../kubernetes/world/ip-netns.ts";
import type { Namespace } from "../kubernetes/world/namespace.ts";
import { missing } from "./harness/missing.ts";
import { Squid } from "./harness/squid.ts";

const [AGENTS, CALLERS, SIDECAR] = [8_091, 8_090, 8_190];
const AUTH = { scheme: "basic", user: "alice", password: "off:with their heads" } as const;
const LOGIN = `alice:${encodeURIComponent(AUTH.password)}@`;
/** Names in the node's network. The agent knows those of the first line, squid all. */
const KNOWN_AT_NODE = `${POD} proxy.example a.direct.example ported.example`;
const KNOWN_BY_SQUID = `${POD} app.example`;

/** Servers of the pod's network, which answer with the address that a request has come from. */
const TARGETS = `
const { readFileSync } = require("node:fs");
const [cert, key] = process.argv.slice(1).map((file) => readFileSync(file));
const answer = (request, response) => response.end("for " + request.socket.remoteAddress.replace("::ffff:", ""));
const servers = [80, 81].map((port) => require("node:http").createServer(answer).listen(port));
servers.push(require("node:https").createServer({ cert, key }, answer).listen(443, () => console.log("listening")));`;

const BY_SQUID = `for ${POD}`;
/** The node's address in that network. */
const BY_AGENT = "for 10.94.2.1";

/** The control plane of a hosted cluster, with a sidecar, and a node in a network with a proxy of its own. */
class HostedCluster implements AsyncDisposable {
  readonly network: NodeNetwork;
  readonly dir = new TempDir();
  readonly #programs: Program[] = [];
  #pki: Pki | undefined;

  private constructor(network: NodeNetwork) {
    this.network = network;
  }

  static async create(): Promise<HostedCluster> {
    requireBuilt();
    return await started(new HostedCluster(await NodeNetwork.create()), (site) => site.#start());
  }

  get pki(): Pki {
    return this.#pki ?? assert.fail("not started");
  }

  async #start(): Promise<void> {
    const { network, dir } = this;
    const { controlPlane, node, pod } = network;
    writeSettings(node.name, ["127.0.0.1 localhost", KNOWN_AT_NODE]);
    writeSettings(pod.name, ["127.0.0.1 localhost", KNOWN_AT_NODE, KNOWN_BY_SQUID]);
    this.#pki = await createPki({ dir: dir.path, clusterNames: [CONTROL_PLANE] });
    const { serverCert, serverKey } = serverFiles(dir.path);
    const targets = pod.start("targets", [process.execPath, "-e", TARGETS, serverCert, serverKey]);
    this.#programs.push(targets);
    const ports = { agentPort: AGENTS, serverPort: CALLERS, healthPort: 0, adminPort: 0 };
    const server = this.#culvert(controlPlane, "server", { ...ports, ...serverFiles(dir.path) });
    const health = { healthServerPort: 0, adminServerPort: 0 };
    const own = { proxyServerHost: CONTROL_PLANE, proxyServerPort: AGENTS, ...health, ...agentFiles(dir.path) };
    const agent = this.#culvert(node, "agent", { ...own, syncInterval: "50ms" });
    await Promise.all([targets.waitForLog("listening"), server.waitForLog("server started")]);
    await agent.waitForLog("uplink connected");
  }

  /** `culvert http-proxy`, with these proxies of the hosted cluster. */
  async startSidecar(options: Flags): Promise<Program> {
    const own = { server: `127.0.0.1:${CALLERS}`, port: SIDECAR, healthPort: 0, ...callerFiles(this) };
    const sidecar = this.#culvert(this.network.controlPlane, "http-proxy", { ...own, ...options });
    return await started(sidecar, () => sidecar.waitForLog("sidecar started"));
  }

  #culvert(inside: Namespace, command: string, options: Flags): Program {
    const program = inside.start(`culvert ${command}`, [RUNTIME, MAIN, command, ...flags(options)]);
    this.#programs.push(program);
    return program;
  }

  /** The answer to a program of the control plane through the sidecar: the body, or the status line of a refusal. */
  async ask(url: string): Promise<string> {
    const curl = ["curl", "-sS", "-k", "-m", "10", "-x", `http://127.0.0.1:${SIDECAR}`, "-w", "\n%{http_connect}", url];
    const { stdout, stderr } = await this.network.controlPlane.run(curl);
    return `${stdout}${stderr}`.trim();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.kill()));
    await this.network[Symbol.asyncDispose]();
    this.dir[Symbol.dispose]();
  }
}

describe("the proxy of a hosted cluster", { skip: missing("squid"), concurrency: 1 }, () => {
  let cluster: HostedCluster;

  before(async () => {
    cluster = await HostedCluster.create();
  });
  after(() => cluster?.[Symbol.asyncDispose]());

  const startSquid = (tls?: { readonly cert: string; readonly key: string }): Promise<Squid> => {
    const place = { where: cluster.network.pod, address: POD, name: tls === undefined ? POD : "proxy.example" };
    return Squid.startAt(place, { auth: [AUTH], takesAll: true, ...(tls && { tls }) });
  };
  const withLogin = ({ url }: Squid, login = LOGIN): string => url.replace("://", `://${login}`);

  test("is reached through the tunnel, with its password, for http and https", async () => {
    await using squid = await startSquid();
    const direct = await cluster.network.controlPlane.run(["curl", "-sS", "-m", "5", squid.url]);
    assert.notEqual(direct.code, 0, "there is no other way");
    const proxy = withLogin(squid);
    await using _sidecar = await cluster.startSidecar({ httpProxy: proxy, httpsProxy: proxy });
    assert.equal(await cluster.ask("http://app.example/"), `${BY_SQUID}\n000`);
    assert.equal(await cluster.ask("https://app.example/"), `${BY_SQUID}\n200`);
    await squid.waitForRequest({ status: 200, user: "alice", method: "GET", target: "http://app.example/" });
    await squid.waitForRequest({ status: 200, user: "alice", method: "CONNECT", target: "app.example:443" });
  });

  test("refuses another password, and the client learns of it", async () => {
    await using squid = await startSquid();
    const proxy = withLogin(squid, "alice:wrong@");
    await using _sidecar = await cluster.startSidecar({ httpProxy: proxy, httpsProxy: proxy });
    assert.match(await cluster.ask("http://app.example/"), /Cache Access Denied/);
    assert.match(await cluster.ask("https://app.example/"), /407/);
  });

  test("is not asked for what NO_PROXY excepts: networks, suffixes, ports, or everything", async () => {
    await using squid = await startSquid();
    const httpProxy = withLogin(squid);
    const asked = async (noProxy: string, url: string): Promise<string> => {
      await using _sidecar = await cluster.startSidecar({ httpProxy, noProxy });
      return (await cluster.ask(url)).split("\n")[0] ?? "";
    };
    for (const [noProxy, url, by] of [
      [PODS, `http://${POD}/`, BY_AGENT],
      ["10.94.3.0/24", `http://${POD}/`, BY_SQUID],
      [".direct.example", "http://a.direct.example/", BY_AGENT],
      ["ported.example:81", "http://ported.example:81/", BY_AGENT],
      ["ported.example:81", "http://ported.example/", BY_SQUID],
      ["*", "http://a.direct.example/", BY_AGENT],
    ] as const) {
      assert.equal(await asked(noProxy, url), by, `${url} with ${noProxy}`);
    }
  });

  test("speaks TLS by a CA of its own", async () => {
    const { serverAuthority, files } = cluster.pki;
    const pair = await serverAuthority.issue({ cn: "proxy", names: ["proxy.example"], usage: "server" });
    await using squid = await startSquid(pair);
    const proxy = withLogin(squid);
    const proxies = { httpProxy: proxy, httpsProxy: proxy };
    {
      await using _sidecar = await cluster.startSidecar({ ...proxies, proxyCa: files["server-ca.crt"] ?? "" });
      assert.equal(await cluster.ask("http://app.example/"), `${BY_SQUID}\n000`);
      assert.equal(await cluster.ask("https://app.example/"), `${BY_SQUID}\n200`);
    }
    await using _sidecar = await cluster.startSidecar(proxies);
    assert.match(await cluster.ask("http://app.example/"), /TLS to the proxy https:\/\/proxy\.example:\d+ failed/);
  });
});
