import { writeFileSync } from "node:fs";
import type { Program } from "../../harness/program.ts";
import { TempDir } from "../../harness/temp.ts";
import type { Assets } from "../assets.ts";
import { ControlPlane, type KubeApiserver } from "./control-plane.ts";
import { Culvert } from "./culvert.ts";
import { callerPair, egressAlong } from "./egress.ts";
import type { CulvertLane } from "./lanes.ts";
import { createNetwork, type Network } from "./network.ts";
import { NodeStandIn } from "./node.ts";
import { RUNNING, worldObjects } from "./objects.ts";
import { createWorldPki, type WorldPki } from "./pki.ts";

/** A control plane and a node that see each other through culvert only, and everything it takes. */
export class World implements AsyncDisposable {
  readonly assets: Assets;
  readonly dir: TempDir;
  readonly pki: WorldPki;
  readonly network: Network;
  readonly controlPlane: ControlPlane;
  readonly culvert: Culvert;
  readonly node: NodeStandIn;
  #objectsMade = false;

  constructor(assets: Assets, dir: TempDir, pki: WorldPki, network: Network) {
    this.assets = assets;
    this.dir = dir;
    this.pki = pki;
    this.network = network;
    this.controlPlane = new ControlPlane(network.controlPlane, assets, pki, dir);
    this.culvert = new Culvert(network, { pki: pki.culvert, stockAgent: assets.konnectivity.agent }, dir.file("s"));
    this.node = new NodeStandIn(network.node, assets.nodeStandIn, pki);
  }

  /** The content of the file that leads a kube-apiserver (or its dialer alone) along a lane. */
  egress(lane: CulvertLane): string {
    return egressAlong(lane, this.culvert.udsName, callerPair(this.pki.culvert));
  }

  /** The same in a file. */
  egressFile(lane: CulvertLane): string {
    const path = this.dir.file(`egress-${lane}.yaml`);
    writeFileSync(path, this.egress(lane));
    return path;
  }

  /** The first one finds an empty etcd, and the objects are made. */
  async startKubeApiserver(egress: string | undefined, port?: number): Promise<KubeApiserver> {
    const started = await this.controlPlane.startKubeApiserver(egress, port);
    if (!this.#objectsMade) {
      await started.kubectl.create(worldObjects(this.pki.node.ca));
      const status = ["--subresource=status", "--type=merge", `--patch=${JSON.stringify(RUNNING)}`];
      await started.kubectl.must(["patch", "pod", "stand-in", "by-name", "by-ipv6", ...status]);
      this.#objectsMade = true;
    }
    return started;
  }

  /** For the files of one check: empty, and gone with it. */
  folder(): TempDir {
    return new TempDir(this.dir.path);
  }

  /** The programs that have a log. */
  get programs(): readonly Program[] {
    return [...this.controlPlane.programs, ...this.culvert.programs, this.node.program];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      // Programs that do not end by themselves end with their namespace.
      await Promise.allSettled([
        this.culvert.stop(),
        this.node[Symbol.asyncDispose](),
        this.controlPlane[Symbol.asyncDispose](),
      ]);
      await this.network[Symbol.asyncDispose]();
    } finally {
      this.dir[Symbol.dispose]();
    }
  }
}

/** Network, certificates, etcd and the node's services; kube-apiserver and culvert come and go with the lanes. */
export async function createWorld(assets: Assets): Promise<World> {
  const network = await createNetwork();
  const dir = new TempDir();
  try {
    const world = new World(assets, dir, await createWorldPki(dir), network);
    await Promise.all([world.controlPlane.startEtcd(), world.node.whenReady()]);
    return world;
  } catch (error) {
    // The first error is reported.
    await network[Symbol.asyncDispose]().catch(() => {});
    dir[Symbol.dispose]();
    throw error;
  }
}
