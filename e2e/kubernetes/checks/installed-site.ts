import { rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parse } from "yaml";
import { Scrape } from "../../harness/scrape.ts";
import { nextVersion } from "../../helm/harness/next-version.ts";
import { dataOf, type KubeObject } from "../../helm/harness/objects.ts";
import { expect, type Stage } from "../check.ts";
import { CONTROL_PLANE, INSTALLED, NODE, PORTS } from "../world/addresses.ts";
import { InstalledCharts, type JobPlace, type Place } from "../world/installed-charts.ts";
import { inMain } from "../world/kubectl.ts";
import { restrictedNamespace } from "../world/objects.ts";
import type { PodProcess } from "../world/pod-process.ts";

const { namespace } = INSTALLED;
const READY_MS = 20_000;

/** How the charts are installed. */
export interface Variant {
  /** Of culvert-server. */
  readonly values: object;
  /** The object that has the server's pod. */
  readonly server: string;
  /** Where the notes of culvert-server have the agents. */
  readonly agentsNamespace: string;
}

/** Both charts as helm has installed them into the API server, and their processes: what their pods say, and no more. */
export class Site {
  readonly #stage: Stage;
  readonly #folder: string;
  readonly #variant: Variant;
  readonly #charts: InstalledCharts;
  readonly #processes: PodProcess[] = [];

  constructor(stage: Stage, folder: string, variant: Variant) {
    this.#stage = stage;
    this.#folder = folder;
    this.#variant = variant;
    this.#charts = new InstalledCharts(stage.kubectl, folder);
  }

  /** The server's chart, and the agent's by the commands that the first one's notes have. */
  async install(): Promise<void> {
    const { kubectl } = this.#stage;
    await kubectl.create([restrictedNamespace(namespace)]);
    await kubectl.must(["config", "set-context", "WORKLOAD", "--cluster=world", "--user=admin"]);
    const install = `helm install culvert-server helm/culvert-server --namespace ${namespace} --values -`;
    const notes = await this.#charts.shellWithJob(install, this.#job(), this.#values);
    const server = await this.#start(this.#variant.server, namespace, this.#controlPlane());
    await this.#stage.world.network.close(server.port("agents"));
    await this.#charts.shell(await this.#commandsIn(notes));
    await this.#start("deployment/culvert-agent", this.#variant.agentsNamespace, this.#node());
  }

  /** By a kube-apiserver that has the installed EgressSelectorConfiguration. */
  async kubectlThroughIt(): Promise<void> {
    const { world, signal } = this.#stage;
    const before = await this.#dials();
    const other = await world.startKubeApiserver(await this.#egress(), PORTS.otherKubeApiserver);
    const kubectl = other.kubectl.until(signal);
    try {
      const logs = await kubectl.must(["logs", "stand-in", "-c", "main"]);
      const exec = await kubectl.must(inMain("stand-in", ["echo", "from exec"]));
      const dials = (await this.#dials()) - before;
      expect(dials > 0, "CONNECTs at the installed server", String(dials));
      const printed = `${logs.stdout}${exec.stdout}`;
      expect(printed === "log of main\nfrom exec\n", "the log, and what exec printed", printed);
    } finally {
      await other.program.kill();
    }
  }

  /** What `helm test` runs. */
  async helmTests(): Promise<void> {
    const tests = [
      ...(await this.#charts.testsOf("culvert-server", namespace, this.#controlPlane())),
      ...(await this.#charts.testsOf("culvert-agent", this.#variant.agentsNamespace, this.#node())),
    ];
    expect(tests.length === 2, "a test of each chart", String(tests.length));
    for (const test of tests) {
      const { code, stdout, stderr } = await test.run();
      expect(code === 0, `exit code 0 of the test ${test.name}`, `exit code ${code}\n${stdout}${stderr}`);
    }
  }

  /** The next version keeps the certificates, and the object that makes the pods can be changed into its own. */
  async upgrade(): Promise<void> {
    const before = await this.#secrets();
    expect(before.length > 0, "Secrets with certificates", "none");
    const chart = nextVersion("culvert-server", this.#folder);
    const upgrade = `helm upgrade culvert-server ${chart} --namespace ${namespace} --values -`;
    await this.#charts.shellWithJob(upgrade, this.#job(), this.#values);
    const after = await this.#secrets();
    const same = JSON.stringify(after) === JSON.stringify(before);
    expect(same, "the same certificates after the upgrade", after.map(([name]) => name).join(", "));
  }

  /** As when the pods are deleted. */
  async end(): Promise<string> {
    const ends = await Promise.all(
      this.#processes.map(async (process) => `${process.name}: ${await process.terminate()}`),
    );
    const ended = ends.join(", ");
    expect(!/SIG|code [1-9]/.test(ended), "processes that end by SIGTERM in order", ended);
    return ended;
  }

  logs(): string {
    return this.#processes.map(({ name, program }) => `── ${name}\n${program.tail()}`).join("\n");
  }

  /** Whatever came of it, the next check finds neither processes nor releases. */
  async stop(): Promise<void> {
    for (const { program } of this.#processes) await program.stop();
    await this.#stage.world.network.close();
    const releases = [
      ["culvert-agent", this.#variant.agentsNamespace],
      ["culvert-server", namespace],
    ];
    for (const [release, where] of releases) {
      await this.#charts.shell(`helm uninstall ${release} --namespace ${where} --ignore-not-found`);
    }
  }

  get #values(): string {
    return JSON.stringify(this.#variant.values);
  }

  async #start(name: string, inNamespace: string, place: Place): Promise<PodProcess> {
    const [object] = await this.#stage.kubectl.get(name, "-n", inNamespace);
    if (object === undefined) throw new Error(`helm has installed no ${name}`);
    const process = await this.#charts.process(object, place);
    process.start();
    this.#processes.push(process);
    for (const probe of ["livenessProbe", "readinessProbe"] as const) {
      await process.program.waitUntil(() => process.probe(probe), READY_MS, `${name} to answer its ${probe}`);
    }
    return process;
  }

  /** The installed file, with what it names where this kube-apiserver finds it. */
  async #egress(): Promise<string> {
    const [configMap] = await this.#stage.kubectl.get("configmap/culvert-server-egress", "-n", namespace);
    const [egress] = Object.values(configMap ? dataOf(configMap) : {});
    if (egress === undefined) throw new Error("helm has installed no file for kube-apiserver");
    const { udsName } = parse(egress).egressSelections[0].connection.transport.uds ?? {};
    if (udsName !== undefined) return egress.replaceAll(udsName, this.#socket(udsName));
    const [secret] = await this.#stage.kubectl.get("secret/culvert-server-caller", "-n", namespace);
    for (const [key, text] of Object.entries(secret ? dataOf(secret) : {})) {
      writeFileSync(join(this.#folder, key), text);
    }
    return egress.replaceAll(/\/\S*\/(?=(?:ca\.crt|tls\.crt|tls\.key)$)/gm, `${this.#folder}/`);
  }

  /** A short path to the socket in the volume that both containers of the pod have. */
  #socket(path: string): string {
    const link = this.#stage.world.dir.file("v");
    rmSync(link, { force: true });
    symlinkSync(this.#server.volumeAt(dirname(path)), link);
    return join(link, basename(path));
  }

  async #secrets(): Promise<[string, KubeObject["data"]][]> {
    const secrets = await this.#stage.kubectl.get(
      "secrets",
      "-n",
      namespace,
      "--field-selector=type=kubernetes.io/tls",
    );
    return secrets.map(({ metadata, data }) => [metadata.name, data]);
  }

  get #server(): PodProcess {
    const [server] = this.#processes;
    if (server === undefined) throw new Error("no server has been started");
    return server;
  }

  async #dials(): Promise<number> {
    const url = `http://127.0.0.1:${this.#server.port("health")}/metrics`;
    const { stdout } = await this.#stage.world.network.controlPlane.must(["curl", "-sS", "-m", "5", url]);
    return new Scrape(stdout).value("culvert_server_dial_duration_seconds_count", { outcome: "ok" });
  }

  #job(): JobPlace {
    return { name: "culvert-server-pki", namespace, place: this.#controlPlane() };
  }

  #controlPlane(): Place {
    const { network, pki } = this.#stage.world;
    return {
      namespace: network.controlPlane,
      name: "control-plane",
      ip: CONTROL_PLANE.ipv4,
      hosts: [`${CONTROL_PLANE.ipv4} ${INSTALLED.callers}`],
      environment: { KUBERNETES_SERVICE_HOST: "127.0.0.1", KUBERNETES_SERVICE_PORT: String(PORTS.kubeApiserver) },
      rootCaFile: pki.kubeApiserver.ca,
    };
  }

  #node(): Place {
    const { network, pki } = this.#stage.world;
    return {
      namespace: network.node,
      name: "stand-in",
      ip: NODE.ipv4,
      hosts: [
        `${CONTROL_PLANE.ipv4} ${INSTALLED.agents}`,
        `${NODE.ipv4} culvert-agent-test.${this.#variant.agentsNamespace}.svc`,
      ],
      environment: {},
      rootCaFile: pki.kubeApiserver.ca,
    };
  }

  /** The commands of the notes' first step: indented lines, as they are. */
  async #commandsIn(notes: string): Promise<string> {
    const [, step = ""] = /\n1\. .*\n([\s\S]*?)\n2\. /.exec(notes) ?? [];
    const lines = step.split("\n").filter((line) => line.startsWith("  "));
    if (lines.length === 0) throw new Error(`the notes have no commands in step 1:\n${notes}`);
    // An earlier check made it, and there is no controller that would remove it.
    const namespaces = await this.#stage.kubectl.get("namespaces");
    const made = namespaces.map(({ metadata }) => `  kubectl --context WORKLOAD create namespace ${metadata.name}`);
    return lines
      .filter((line) => !made.includes(line))
      .map((line) => line.slice(2))
      .join("\n");
  }
}
