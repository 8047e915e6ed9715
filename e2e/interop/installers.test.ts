import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { createPki } from "../../cli/pki/pki.ts";
import { Issuer } from "../../server/tokens/testing/tokens.ts";
import { HttpsStub } from "../../shared/kubernetes/testing/https-stub.ts";
import { installerArguments } from "../harness/installer-arguments.ts";
import { type KonnectivityPrograms, konnectivityPrograms } from "../harness/konnectivity-programs.ts";
import { agentFiles, serverFiles } from "../harness/pki-files.ts";
import { startCulvert } from "../harness/processes.ts";
import { Program } from "../harness/program.ts";
import { freePort } from "../harness/targets/absent.ts";
import { bannerTarget } from "../harness/targets/plain.ts";
import { TempDir } from "../harness/temp.ts";
import { nodePrograms } from "../kubernetes/assets.ts";
import { goMissing } from "./go-peer.ts";

/** How an installer starts server and agents, and how its callers come. */
interface Installer {
  readonly server: string;
  readonly agent: string;
  readonly callers: "GRPC on the socket" | "GRPC over TLS" | "CONNECT over TLS";
  /** Of the service account that its agents have. */
  readonly account?: string;
  /** Where its agents are chosen by the target's name. */
  readonly agentIdentifiers?: string;
}

const INSTALLERS: readonly Installer[] = [
  { server: "KKP, server", agent: "KKP, agent", callers: "GRPC on the socket", account: "system-konnectivity-agent" },
  { server: "Kamaji, server", agent: "Kamaji, agent", callers: "GRPC on the socket", account: "konnectivity-agent" },
  { server: "k0s, server", agent: "k0s, agent", callers: "GRPC on the socket", account: "konnectivity-agent" },
  {
    server: "Kubernetes documentation, static pod of the server",
    agent: "Kamaji, agent",
    callers: "GRPC on the socket",
    account: "konnectivity-agent",
  },
  { server: "HyperShift, server", agent: "HyperShift, agent on the nodes", callers: "CONNECT over TLS" },
  {
    server: "OCM, server",
    agent: "OCM, agent of blue",
    callers: "GRPC over TLS",
    agentIdentifiers: "host=localhost",
  },
];

/** Everything that stands in for an installer's files, ports and hosts. */
class Site implements Disposable {
  readonly dir = new TempDir();
  readonly uds = this.dir.file("s");
  readonly tokenFile = this.dir.file("token");
  readonly ports = { callers: 0, agents: 0, health: 0, admin: 0 };
  kubeconfig = "";

  static async create(t: TestContext, account: string | undefined): Promise<Site> {
    const site = new Site();
    await createPki({ dir: site.dir.path });
    for (const name of Object.keys(site.ports) as (keyof Site["ports"])[]) site.ports[name] = await freePort();
    const username = `system:serviceaccount:kube-system:${account}`;
    const aud = ["system:konnectivity-server"];
    writeFileSync(site.tokenFile, await (await Issuer.create()).token({ sub: username, aud }));
    const api = await HttpsStub.start(t);
    api.answer = () => ({
      status: 201,
      body: { status: { authenticated: true, user: { username }, audiences: aud } },
    });
    site.kubeconfig = await api.kubeconfig(site.dir.path);
    return site;
  }

  server({ server, callers }: Installer): string[] {
    const { clusterCert, clusterKey, clusterCaCert, serverCert, serverKey, serverCaCert } = serverFiles(this.dir.path);
    return installerArguments(server, {
      ...{ "cluster-cert": clusterCert, "cluster-key": clusterKey, "cluster-ca-cert": clusterCaCert },
      ...{ "server-cert": serverCert, "server-key": serverKey, "server-ca-cert": serverCaCert },
      ...{ kubeconfig: this.kubeconfig, "uds-name": this.uds },
      ...{ "agent-port": this.ports.agents, "health-port": this.ports.health, "admin-port": this.ports.admin },
      // The lists with a unix socket have 0.
      ...(callers === "GRPC on the socket" ? {} : { "server-port": this.ports.callers }),
    });
  }

  agent({ agent, agentIdentifiers }: Installer, health: number, admin: number): string[] {
    const { caCert, agentCert, agentKey } = agentFiles(this.dir.path);
    return installerArguments(agent, {
      ...{ "ca-cert": caCert, "agent-cert": agentCert, "agent-key": agentKey },
      ...{ "service-account-token-path": this.tokenFile },
      ...{ "proxy-server-host": "127.0.0.1", "proxy-server-port": this.ports.agents },
      ...{ "health-server-port": health, "admin-server-port": admin },
      ...(agentIdentifiers && { "agent-identifiers": agentIdentifiers }),
    });
  }

  /** How the dialer goes, as the installer's callers do. */
  way({ callers }: Installer): string[] {
    const file = (name: string): string => this.dir.file(name);
    const [ca, cert, key] = [file("server-ca.crt"), file("client.crt"), file("client.key")];
    const server = `127.0.0.1:${this.ports.callers}`;
    if (callers === "GRPC over TLS") return ["--grpc-over-tls", server, "--ca", ca, "--cert", cert, "--key", key];
    const tlsConfig = { caBundle: ca, clientCert: cert, clientKey: key };
    const connection =
      callers === "CONNECT over TLS"
        ? { proxyProtocol: "HTTPConnect", transport: { tcp: { url: `https://${server}`, tlsConfig } } }
        : { proxyProtocol: "GRPC", transport: { uds: { udsName: this.uds } } };
    const egress = {
      ...{ apiVersion: "apiserver.k8s.io/v1beta1", kind: "EgressSelectorConfiguration" },
      egressSelections: [{ name: "cluster", connection }],
    };
    writeFileSync(file("egress.yaml"), JSON.stringify(egress));
    return ["--config", file("egress.yaml")];
  }

  [Symbol.dispose](): void {
    this.dir[Symbol.dispose]();
  }
}

const programs: KonnectivityPrograms | undefined = goMissing === undefined ? await konnectivityPrograms() : undefined;
const dialer = goMissing === undefined ? (await nodePrograms()).egressDialer : "";

for (const installer of INSTALLERS) {
  test(`a server with the arguments of ${installer.server} serves its callers, with stock agents and ours`, {
    skip: goMissing,
  }, async (t) => {
    using site = await Site.create(t, installer.account);
    await using target = await bannerTarget("SSH-2.0-target\r\n");
    await using server = startCulvert(["server", ...site.server(installer)]);
    await server.waitForHealth(`http://127.0.0.1:${site.ports.health}/readyz`);
    for (const kind of ["stock", "ours"] as const) {
      const args = site.agent(installer, await freePort(), await freePort());
      await using agent =
        kind === "stock"
          ? new Program("konnectivity-agent", [programs?.agent ?? "", ...args])
          : startCulvert(["agent", ...args, "--allow-loopback"]);
      const opened = () =>
        server.log.filter((line) => line.includes("tunnel opened")).length > (kind === "ours" ? 1 : 0);
      await agent.waitUntil(opened, 15_000, "a tunnel");
      const asked = ["--target", `localhost:${target.port}`, "--count", "2", "--banner"];
      const { stdout } = await promisify(execFile)(dialer, [...site.way(installer), ...asked]);
      assert.equal(JSON.parse(stdout).failures, 0, stdout);
      await agent.kill();
    }
  });
}
