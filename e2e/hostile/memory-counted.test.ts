import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import type { PlayedAgent } from "../../server/testing/played-agent.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type CallerListener, connectThrough } from "../harness/caller.ts";
import type { ClusterFiles } from "../harness/cluster-files.ts";
import { collectGarbage } from "../harness/inspector.ts";
import { MemoryCgroup } from "../harness/memory-cgroup.ts";
import { GROWTH_MEASURED } from "../harness/resident-growth.ts";
import { scrapePort } from "../harness/scrape.ts";
import { answered, type TenantAgentOptions, tenantAgent, withoutAcks } from "../harness/tenant-agent.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { standing, waitFor } from "../harness/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** Far more than is held: nothing has to be given up. */
const POD = 8192 * MIB;
/** glibc returns freed buffers of this number of bytes to the system: reads are of 16 KiB. */
const FREED = "8192";
/** The held bytes are a part of the growth, beside memory that cannot be counted. */
const TOLERANCE = 0.3;

interface Scene {
  readonly tenants: TwoTenants;
  readonly agent: PlayedAgent;
  readonly callers: readonly Socket[];
}

/** A load that makes the server hold something. */
interface Scenario {
  readonly callers: number;
  readonly via: "uds" | "tls";
  /** Their CONNECTs are not answered. */
  readonly pending?: true;
  /** How the agent treats streams and link. */
  readonly agent?: TenantAgentOptions;
  act(scene: Scene): Promise<unknown>;
}

/** Never answers a CONNECT. */
const SILENT: TenantAgentOptions = { onStream: (stream) => stream.accept() };
/** Acknowledges nothing that it is sent, and reads it all. */
const UNACKNOWLEDGING: TenantAgentOptions = {
  onLink: withoutAcks,
  onStream: (stream) =>
    void answered(stream).then(
      () => stream.resume(),
      () => {},
    ),
};

function callersSend(bytes: number): Scenario["act"] {
  return async ({ callers }) => {
    for (const socket of callers) socket.write(Buffer.alloc(bytes));
  };
}

function agentSends(bytes: number): Scenario["act"] {
  return async ({ agent }) => {
    for (const stream of agent.streams) stream.write(Buffer.alloc(bytes));
  };
}

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "callers on a unix socket that stop reading": {
    ...{ callers: 300, via: "uds" },
    act: agentSends(512 * KIB),
  },
  "callers over TLS that stop reading": {
    ...{ callers: 60, via: "tls" },
    act: agentSends(8 * MIB),
  },
  "pieces of 512 bytes, each in a read of 16 KiB, for callers that have stopped reading": {
    ...{ callers: 500, via: "uds" },
    act: async ({ tenants, agent, callers }) => {
      const [padding, ...streams] = agent.streams as [Stream, ...Stream[]];
      callers[0]?.resume();
      for (const stream of streams) stream.write(Buffer.alloc(300 * KIB));
      const full = () => streams.every(({ writableLength }) => writableLength === 0);
      await waitFor(full, { deadlineMs: 30_000, what: "the sockets of the callers to be full" });
      for (let piece = 0; piece < 20; piece++) {
        // malloc keeps the holes between what was freed late and what is kept, and nobody holds those.
        await collectGarbage(tenants.server);
        for (const stream of streams) {
          stream.write(Buffer.alloc(512));
          await new Promise((resolve) => padding.write(Buffer.alloc(15_600), resolve));
        }
      }
    },
  },
  "targets that stop reading": {
    ...{ callers: 200, via: "uds" },
    act: callersSend(MIB),
  },
  "an agent that acknowledges nothing": {
    ...{ callers: 100, via: "uds", agent: UNACKNOWLEDGING },
    act: callersSend(MIB),
  },
  "CONNECTs that wait, with bytes that came early": {
    ...{ callers: 500, via: "uds", pending: true, agent: SILENT },
    act: callersSend(60 * KIB),
  },
};

/** A CONNECT that has been sent. */
async function ask({ uds }: ClusterFiles): Promise<Socket> {
  const socket = connect({ path: uds }).on("error", () => {});
  await once(socket, "connect");
  socket.write("CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n");
  return socket;
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  test(`what /metrics says is held is what the process and its pod have grown by: ${name}`, async (t) => {
    using cgroup = new MemoryCgroup(POD);
    const process = { ...GROWTH_MEASURED, env: { MALLOC_MMAP_THRESHOLD_: FREED }, cgroupProcs: cgroup.procs };
    const server = { "memory-limit": POD, "session-budget": 1024 * MIB };
    await using tenants = await startTwoTenants({ process, server });
    const { red, agentPort, callerPort, healthPort } = tenants;
    await using agent = await tenantAgent(red, agentPort, scenario.agent);
    const listener: CallerListener = await red.listener(scenario.via, callerPort);
    const held = async () => (await scrapePort(healthPort)).value("culvert_server_memory_held_bytes");
    const used = async () => {
      await collectGarbage(tenants.server);
      return cgroup.usedBytes() + (cgroup.chargesTcp ? 0 : tcpBytesOf([agentPort, callerPort]));
    };
    const callers: Socket[] = [];
    try {
      while (callers.length < scenario.callers) {
        callers.push(scenario.pending ? await ask(red) : (await connectThrough(listener, "10.0.0.1:1")).socket);
      }
      for (const socket of callers) socket.pause();
      await waitFor(() => agent.streams.length === callers.length, { what: "a stream of each" });
      const before = { held: await held(), used: await used() };
      await scenario.act({ tenants, agent, callers });
      // Nothing at all does not count as standing.
      await standing(async () => (await held()) || Number.NaN, { deadlineMs: 60_000, everyMs: 1_500 });
      const counted = (await held()) - before.held;
      const growth = (await used()) - before.used;
      t.diagnostic(`${(counted / MIB).toFixed(1)} MiB counted, grown by ${(growth / MIB).toFixed(1)} MiB`);
      assert.ok(Math.abs(counted - growth) <= TOLERANCE * growth, `${counted} bytes counted, grown by ${growth}`);
    } finally {
      for (const socket of callers) socket.destroy();
    }
  });
}

/** Bytes that the kernel has to send on these ports: version 1 of control groups does not charge a pod with them. */
function tcpBytesOf(ports: readonly number[]): number {
  let bytes = 0;
  for (const line of readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1)) {
    const [, local = "", , , queues = ""] = line.trim().split(/\s+/);
    if (ports.includes(Number.parseInt(local.split(":")[1] ?? "", 16)))
      bytes += Number.parseInt(queues.split(":")[0] ?? "", 16);
  }
  return bytes;
}
