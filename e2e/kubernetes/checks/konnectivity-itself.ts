import { setTimeout as sleep } from "node:timers/promises";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { inMain } from "../world/kubectl.ts";
import { CONNECTED } from "./failures.ts";
import { startStockServer } from "./migration.ts";

const LINES = 300;
/** Line by line they take 6 s. */
const ALL_LINES_MS = 10_000;
/** Ports that the lane's own agent does not have. */
const AGENT_PORT = 8_110;

/**
 * The rows that a stock agent has none of, with Konnectivity's own server in the place of culvert's:
 * docs/kubernetes-results.md names them. Limits without a row are in e2e/interop/konnectivity-limits.test.ts.
 */
export const KONNECTIVITY_ITSELF: Check = {
  name: "Konnectivity's own server: a connection that is cut, a target that is forbidden",
  deadlineMs: 90_000,
  lanes: ["grpc-stock"],
  inFullRun: true,
  run: failsToo,
};

async function failsToo(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  await culvert.stop();
  const server = startStockServer(stage.world);
  const agent = culvert.startAgentOf("konnectivity", "itself", AGENT_PORT);
  try {
    await agent.waitForLog(CONNECTED.konnectivity);
    return { printed: `${await whatACutLeaves(stage)}; ${await whatIsForbidden(stage)}` };
  } finally {
    await Promise.all([server.kill(), agent.kill()]);
    await culvert.startServer();
    culvert.startAgent();
    await culvert.agent.waitForLog(CONNECTED.konnectivity);
  }
}

async function whatACutLeaves({ world, kubectl, signal }: Stage): Promise<string> {
  const { network } = world;
  await using following = kubectl.start(["logs", "-f", "stand-in", "-c", `steady-${LINES}`]);
  await following.waitForLog(/line 50$/);
  await network.reset();
  await sleep(1_000, undefined, { signal });
  await network.close();
  await sleep(ALL_LINES_MS, undefined, { signal });
  const lines = following.log.filter((line) => /^line \d+$/.test(line)).length;
  expect(lines < LINES, "a log that does not go on after the cut", following.tail());
  await following.kill();
  return `${lines} of ${LINES} lines of logs -f over a cut`;
}

/** It is dialled, whatever becomes of that. */
async function whatIsForbidden({ kubectl }: Stage): Promise<string> {
  const { code, stderr } = await kubectl.run(inMain("forbidden", ["true"]));
  const wasDialled = /dial tcp 169\.254\.169\.254:\d+: .*$/m.exec(stderr)?.[0];
  expect(code !== 0 && wasDialled !== undefined, "an error of a dial", stderr);
  return `a metadata service: ${wasDialled}`;
}
