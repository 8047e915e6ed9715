import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parse } from "yaml";
import { Scrape } from "../../harness/scrape.ts";
import { nextVersion } from "../../helm/harness/next-version.ts";
import { dataOf, type KubeObject } from "../../helm/harness/objects.ts";
import { expect, type Stage } from "../check.ts";
import { CONTROL_PLANE, INSTALLED_SERVERS, NODE, PORTS } from "../world/addresses.ts";
import { InstalledCharts, type Place } from "../world/installed-charts.ts";
import { inMain } from "../world/kubectl.ts";
import { restrictedNamespace } from "../world/objects.ts";
import type { PodProcess } from "../world/pod-process.ts";
import type { Variant } from "./installed-variants.ts";

const READY_MS = 20_000;
/** Nothing is rolled out by an API server alone: the processes are started here. */
const ROLLOUT = /^(?:helm|kubectl).* rollout status .*\n?/gm;

/**
 * Both charts as helm has installed them into the API server, and their processes: what their pods say, and no more.
 */
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

  /** The server's chart, and then the agent's. */
  async install(): Promise<void> {
    const { kubectl, world } = this.#stage;
    const { namespace, context, objects, server, balancer, installAgents, agentsNamespace } = this.#variant;
    await kubectl.create([restrictedNamespace(namespace), ...(await objects(world.pki))]);
    await kubectl.must(["config", "set-context", context, "--cluster=world", "--user=admin"]);
    const printed = await this.#release(this.#line(this.#variant.install));
    const process = await this.#start(server, namespace, this.#controlPlane());
    await world.network.close(process.port("agents"), balancer);
    await this.#charts.shell(installAgents === undefined ? await this.#commandsIn(printed) : this.#line(installAgents));
    await this.#start("deployment/culvert-agent", agentsNamespace, this.#node());
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

  /** The script of `helm test`. */
  async helmTests(): Promise<void> {
    const { release, namespace, agentsNamespace } = this.#variant;
    const tests = [
      ...(await this.#charts.testsOf(release, namespace, this.#controlPlane())),
      ...(await this.#charts.testsOf("culvert-agent", agentsNamespace, this.#node())),
    ];
    expect(tests.length === this.#variant.tests, `${this.#variant.tests} tests`, String(tests.length));
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
    const { release, namespace } = this.#variant;
    await this.#release(`helm upgrade ${release} ${chart} --namespace ${namespace} --values -`);
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
    expect(!/SIG|code [1-9]/.test(ended), "processes that end cleanly by SIGTERM", ended);
    return ended;
  }

  logs(): string {
    return this.#processes.map(({ name, program }) => `── ${name}\n${program.tail()}`).join("\n");
  }

  /** Whatever came of it, the next check finds neither processes nor releases. */
  async stop(): Promise<void> {
    for (const { program } of this.#processes) await program.stop();
    await this.#stage.world.network.close();
    const { release, namespace, agentsNamespace } = this.#variant;
    const releases = [
      ["culvert-agent", agentsNamespace],
      [release, namespace],
    ];
    for (const [name, where] of releases) {
      await this.#charts.shell(`helm uninstall ${name} --namespace ${where} --ignore-not-found`);
    }
  }

  /** Runs a line in which helm installs or upgrades the server's chart, and returns what it printed. */
  async #release(line: string): Promise<string> {
    const { release, namespace, hasJob, values = {} } = this.#variant;
    const stdin = JSON.stringify(values);
    if (!hasJob) return await this.#charts.shell(line, stdin);
    return await this.#charts.shellWithJob(
      line,
      { prefix: `${release}-pki-`, namespace, place: this.#controlPlane() },
      stdin,
    );
  }

  /** Lines of a page, with what its reader has set. */
  #line(lines: string): string {
    const { namespace } = this.#variant;
    return `export NS=${namespace} IMAGE=registry.example.com/culvert\n${lines.replaceAll(ROLLOUT, "")}`;
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

  /** The file for kube-apiserver, with what it names where this one finds it. */
  async #egress(): Promise<string> {
    const egress = await this.#egressFile();
    const { udsName } = parse(egress).egressSelections[0].connection.transport.uds ?? {};
    if (udsName !== undefined) return egress.replaceAll(udsName, this.#socket(udsName));
    let here = egress;
    for (const [at, name] of Object.entries(this.#variant.callerFiles)) {
      const folder = join(this.#folder, "kube-apiserver", at);
      mkdirSync(folder, { recursive: true });
      const [object] = await this.#stage.kubectl.get(name, "-n", this.#variant.namespace);
      for (const [key, text] of Object.entries(object ? dataOf(object) : {})) writeFileSync(join(folder, key), text);
      here = here.replaceAll(`${at}/`, `${folder}/`);
    }
    return here;
  }

  /** Of the ConfigMap; or of the notes, where the platform has the file already. */
  async #egressFile(): Promise<string> {
    const { release, namespace } = this.#variant;
    const configMaps = await this.#stage.kubectl.get("configmaps", "-n", namespace);
    const configMap = configMaps.find(({ metadata }) => metadata.name === `${release}-egress`);
    const [installed] = Object.values(configMap ? dataOf(configMap) : {});
    if (installed !== undefined) return installed;
    const notes = await this.#charts.shell(`helm get notes ${release} --namespace ${namespace}`);
    const [, lines] = /\n2\. .*\n+((?: {2}.*\n)+)/.exec(notes) ?? [];
    if (lines === undefined) throw new Error(`the notes have no file for kube-apiserver:\n${notes}`);
    return lines.replaceAll(/^ {2}/gm, "");
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
      this.#variant.namespace,
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

  #controlPlane(): Place {
    const { network, pki } = this.#stage.world;
    const { podSecurity } = this.#variant;
    return {
      namespace: network.controlPlane,
      name: "control-plane",
      ip: CONTROL_PLANE.ipv4,
      hosts: [`${CONTROL_PLANE.ipv4} ${INSTALLED_SERVERS.join(" ")}`],
      environment: { KUBERNETES_SERVICE_HOST: "127.0.0.1", KUBERNETES_SERVICE_PORT: String(PORTS.kubeApiserver) },
      rootCaFile: pki.kubeApiserver.ca,
      ...(podSecurity && { podSecurity }),
    };
  }

  #node(): Place {
    const { network, pki } = this.#stage.world;
    const { agentsHost, agentsNamespace, balancer } = this.#variant;
    return {
      namespace: network.node,
      name: "stand-in",
      ip: NODE.ipv4,
      hosts: [
        ...(agentsHost ? [`${balancer?.address ?? CONTROL_PLANE.ipv4} ${agentsHost}`] : []),
        `${NODE.ipv4} culvert-agent-test.${agentsNamespace}.svc`,
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
