import { createSite } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import { PeerFiles } from "../harness/peer-files.ts";
import { freePort } from "../harness/targets/absent.ts";
import { waitFor } from "../harness/wait.ts";
import type { Contender, Ports } from "./contenders.ts";
import type { BenchTarget } from "./dial-spec.ts";

const QUIET = { ignoreStdout: true } as const;

/** Two servers and their directory: the agent is connected to the far one, callers may come to either. */
export interface HopPair extends AsyncDisposable {
  /** Callers at the server that has no agent. */
  readonly over: Contender;
  /** Callers at the server that has the agent. */
  readonly direct: Contender;
}

export async function startHopPair(ports: Pick<Ports, "echo"> & Partial<Ports>): Promise<HopPair> {
  const site = await createSite();
  const started: AsyncDisposable[] = [];
  const stop = async () => {
    for (const each of started.reverse()) await each[Symbol.asyncDispose]();
    site[Symbol.dispose]();
  };
  try {
    const nats = await NatsServers.start({ dir: site.dir.path });
    started.push(nats);
    const peers = await PeerFiles.create(site.dir);
    const sockets = { near: site.dir.file("near"), far: site.dir.file("far") };
    const start = async (serverId: "near" | "far", agentPort: number) => {
      const own = { serverId, udsName: sockets[serverId], agentPort };
      const free = { serverPort: await freePort(), healthPort: await freePort() };
      const peer = await peers.flagsOf(serverId, { peerPort: await freePort() }, nats.urls());
      const server = await site.startServer({ ...own, ...free, ...peer }, QUIET);
      started.push(server);
      return server;
    };
    const near = await start("near", await freePort());
    const far = await start("far", site.agentPort);
    const agent = await site.startAgent({}, QUIET);
    started.push(agent);
    const contender = (name: "culvert" | "without", socket: string): Contender => ({
      ...{ name, far: agent.pid, [Symbol.asyncDispose]: async () => {} },
      dial: (target: BenchTarget) => ({ path: socket, connect: `127.0.0.1:${ports[target]}` }),
    });
    const over = { ...contender("culvert", sockets.near), near: near.pid, between: far.pid };
    await waitFor(async () => await connects(sockets.near, ports.echo), { deadlineMs: 30_000, what: "the hop" });
    const direct = { ...contender("without", sockets.far), near: far.pid };
    return { over, direct, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function connects(path: string, port: number): Promise<boolean> {
  await using connection = await connectThrough({ path }, `127.0.0.1:${port}`);
  return connection.status === 200;
}
