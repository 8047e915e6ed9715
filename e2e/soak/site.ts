import { mkdirSync } from "node:fs";
import { type ClusterFiles, ClusterFolder } from "../harness/cluster-files.ts";
import { startClusterProcess } from "../harness/cluster-processes.ts";
import { type FaultRelay, startRelay } from "../harness/faults.ts";
import { KubernetesVolume } from "../harness/kubernetes-volume.ts";
import { started } from "../harness/started.ts";
import { TempDir } from "../harness/temp.ts";
import { SOAKED, type Soaked, soaked, startSoakedAgent } from "./processes.ts";

const CLUSTERS = ["red", "blue"] as const;
/** A connection that was silenced is noticed after 2.5 of them. */
const KEEPALIVE = "1s";

/** The two agents of each cluster: one behind a relay that cuts it, and one with an undisturbed path. */
export interface SoakedCluster {
  readonly files: ClusterFiles;
  /** The Secret that the server mounts, with a certificate for its usual name and for `otherName`. */
  readonly secret: KubernetesVolume;
  readonly otherName: string;
  readonly agents: readonly { readonly soaked: Soaked; readonly secret: KubernetesVolume }[];
  readonly relay: FaultRelay;
}

/** One `culvert server` with two clusters, and two `culvert agent` for each. */
export class Site implements AsyncDisposable {
  readonly #owned: AsyncDisposable[] = [];
  readonly #secrets = new TempDir();
  readonly clusters: SoakedCluster[] = [];
  #server: Soaked | undefined;
  callerPort = 0;

  /** `logs`: a folder for the logs of all processes. */
  static start(logs: string | undefined): Promise<Site> {
    if (logs !== undefined) mkdirSync(logs, { recursive: true });
    return started(new Site(), (site) => site.#start(logs));
  }

  get server(): Soaked {
    if (this.#server === undefined) throw new Error("the server has not been started");
    return this.#server;
  }

  get agents(): readonly Soaked[] {
    return this.clusters.flatMap(({ agents }) => agents.map((agent) => agent.soaked));
  }

  /** The server first. */
  get processes(): readonly Soaked[] {
    return [this.server, ...this.agents];
  }

  /** Processes that are not there any more: none may end during a run. */
  get ended(): readonly string[] {
    return this.processes.filter(({ process }) => !process.running).map(({ name }) => name);
  }

  /** Carriers that relays have cut so far. */
  get cuts(): number {
    return this.clusters.reduce((sum, { relay }) => sum + relay.cuts, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const resource of this.#owned.toReversed()) await resource[Symbol.asyncDispose]();
    this.#secrets[Symbol.dispose]();
  }

  async #start(logs: string | undefined): Promise<void> {
    const folder = await ClusterFolder.create(CLUSTERS);
    this.#owned.push({ [Symbol.asyncDispose]: async () => folder[Symbol.dispose]() });
    const mounted: { files: ClusterFiles; otherName: string; secret: KubernetesVolume }[] = [];
    for (const files of folder.all) {
      const otherName = `also.${files.sni}`;
      const secret = this.#mount(files.name, secretOf(files, await files.issueServer([files.sni, otherName])));
      await files.write(documentOf({ files, secret, otherName }, 0));
      mounted.push({ files, otherName, secret });
    }
    const { server, callerPort, agentPort, healthPort } = await startClusterProcess(
      folder,
      { keepalive: KEEPALIVE },
      SOAKED,
    );
    this.#owned.push(server);
    this.#server = soaked("server", server, healthPort, logs);
    this.callerPort = callerPort;
    for (const cluster of mounted) {
      const relay = await startRelay({ host: "127.0.0.1", port: agentPort });
      this.#owned.push(relay);
      const agents = [];
      for (const port of [relay.port, agentPort]) {
        const agentId = `${cluster.files.name}-${port === relay.port ? "cut" : "direct"}`;
        const secret = this.#mount(agentId, secretOf(cluster.files, await cluster.files.issueAgent()));
        const agent = await startSoakedAgent(cluster.files, secret, { agentId, port, logs });
        this.#owned.push(agent.process);
        agents.push({ soaked: agent, secret });
      }
      this.clusters.push({ ...cluster, relay, agents });
    }
  }

  #mount(name: string, files: Readonly<Record<string, string>>): KubernetesVolume {
    return new KubernetesVolume(this.#secrets.file(name), files);
  }
}

/** The content of a Secret of type kubernetes.io/tls. */
export function secretOf({ ca }: ClusterFiles, { cert, key }: { readonly cert: string; readonly key: string }) {
  return { "tls.crt": cert, "tls.key": key, "ca.crt": ca };
}

/** Each edit of a cluster's document changes a limit, and every second one gives callers another name to ask for. */
export function documentOf(
  { files, secret, otherName }: Pick<SoakedCluster, "files" | "secret" | "otherName">,
  edit: number,
) {
  const material = { cert: secret.file("tls.crt"), key: secret.file("tls.key"), ca: secret.file("ca.crt") };
  const names = edit % 2 === 0 ? [files.sni] : [files.sni, otherName];
  return {
    agents: material,
    callers: { ...material, sni: names },
    limits: { streams: String(10_000 + edit) },
  };
}
