import { constants, setPriority } from "node:os";
import { type CallerListener, type Connection, connectThrough } from "./caller.ts";
import { type ClusterFiles, ClusterFolder, type DocumentChange } from "./cluster-files.ts";
import { type ClusterServerProcess, startAgentProcess, startClusterProcess } from "./cluster-processes.ts";
import type { Flags } from "./pki-files.ts";
import type { ManagedProcess, ProcessOptions } from "./processes.ts";
import { TARGETS } from "./targets.ts";

export interface TwoTenantsOptions {
  /** More flags of the server. */
  readonly server?: Flags;
  /** Flags that differ for the second server, which nobody attacks: a port, for example. */
  readonly calm?: Flags;
  readonly process?: ProcessOptions;
  /** Keys of the clusters' documents beside names and certificates. */
  readonly red?: DocumentChange;
  readonly blue?: DocumentChange;
}

/**
 * One `culvert server` process with two clusters: `red`, from which hostile traffic comes, and `blue`, which is honest
 * and has an agent process and an echo target.
 */
export interface TwoTenants extends ClusterServerProcess, AsyncDisposable {
  readonly folder: ClusterFolder;
  readonly red: ClusterFiles;
  readonly blue: ClusterFiles;
  readonly blueAgent: ManagedProcess;
  /** `host:port` of blue's echo target. */
  readonly target: string;
  readonly blueListener: CallerListener;
  /** Of a second server with an agent of its own, which nobody attacks. */
  readonly calmListener: CallerListener;
  readonly calmServer: ManagedProcess;
  /** One CONNECT of blue's caller to its echo target. */
  connect(): Promise<Connection>;
}

export async function startTwoTenants(options: TwoTenantsOptions = {}): Promise<TwoTenants> {
  goFirst();
  const folder = await ClusterFolder.create(["red", "blue"]);
  const { cgroupProcs: _, ...calmProcess } = options.process ?? {};
  const starting = startCalm({ ...options.server, ...options.calm }, calmProcess);
  const stopCalm = () =>
    starting.then(
      (calm) => calm[Symbol.asyncDispose](),
      () => {},
    );
  const owned: AsyncDisposable[] = [{ [Symbol.asyncDispose]: stopCalm }];
  const dispose = async (): Promise<void> => {
    await Promise.all(owned.map((resource) => resource[Symbol.asyncDispose]()));
    folder[Symbol.dispose]();
  };
  try {
    const [red, blue] = [folder.get("red"), folder.get("blue")];
    if (options.red !== undefined) await red.write(options.red);
    if (options.blue !== undefined) await blue.write(options.blue);
    const echo = await TARGETS.echo();
    owned.push(echo);
    const served = await startClusterProcess(folder, options.server, options.process);
    owned.push(served.server);
    const blueAgent = await startAgentProcess(blue, served.agentPort);
    owned.push(blueAgent);
    const blueListener = await blue.listener("tls", served.callerPort);
    const connect = (): Promise<Connection> => connectThrough(blueListener, echo.address);
    const { listener: calmListener, server: calmServer } = await starting;
    const tenants = { folder, red, blue, blueAgent, target: echo.address, blueListener, calmListener, calmServer };
    return { ...served, ...tenants, connect, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await dispose();
    throw error;
  }
}

/**
 * This process and those that it starts, but for floods, which take the lowest priority, come before whatever else runs
 * on the machine: a server with much to do would wait for that much longer than an idle one. Only root may ask for it.
 */
function goFirst(): void {
  try {
    setPriority(constants.priority.PRIORITY_HIGH);
  } catch {}
}

/** A server with one cluster, its agent and nobody else. */
async function startCalm(flags: Flags, process: ProcessOptions) {
  const folder = await ClusterFolder.create(["blue"]);
  const owned: AsyncDisposable[] = [];
  const dispose = async (): Promise<void> => {
    await Promise.all(owned.map((resource) => resource[Symbol.asyncDispose]()));
    folder[Symbol.dispose]();
  };
  try {
    const blue = folder.get("blue");
    const { server, callerPort, agentPort } = await startClusterProcess(folder, flags, process);
    owned.push(server);
    owned.push(await startAgentProcess(blue, agentPort));
    const listener = await blue.listener("tls", callerPort);
    return { listener, server, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await dispose();
    throw error;
  }
}
