import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { inMain } from "../world/kubectl.ts";
import type { AgentKind } from "../world/lanes.ts";
import { holding } from "./dials.ts";
import { CONNECTED } from "./failures.ts";

const HELD = 20;
const KINDS = ["culvert", "konnectivity"] as const;

/** In the middle of a migration a cluster has agents of both kinds. */
export const SIDE_BY_SIDE: Check = {
  name: "both agents have a part of the connections, and either serves alone",
  deadlineMs: 60_000,
  lanes: ["mixed"],
  run: sideBySide,
};

async function sideBySide(stage: Stage): Promise<Seen> {
  const { culvert } = stage.world;
  const parts = await partsOf(stage);
  for (const part of parts) expect(part > 0, "connections at each agent", parts.join(", "));
  for (const lost of KINDS) {
    await culvert.agentOf(lost).kill();
    const { stdout } = await stage.kubectl.must(inMain("stand-in", ["echo", "as ever"]));
    expect(stdout === "as ever\n", "an echo", stdout);
    await Promise.all(KINDS.map((kind) => culvert.agentOf(kind).kill()));
    culvert.startAgent();
    await Promise.all(KINDS.map((kind) => culvert.agentOf(kind).waitForLog(CONNECTED[kind])));
  }
  return { printed: `of ${HELD} connections ${parts[0]} through our agent, ${parts[1]} through the stock one` };
}

async function partsOf(stage: Stage): Promise<readonly number[]> {
  const before = await streams(stage);
  await using _caller = await holding(stage, HELD);
  const added = async () => {
    const parts = (await streams(stage)).map((count, i) => count - (before[i] ?? 0));
    return parts.reduce((all, part) => all + part) >= HELD ? parts : undefined;
  };
  return await waitFor(added, { what: `${HELD} more streams` });
}

function streams({ world }: Stage): Promise<number[]> {
  const of = async (kind: AgentKind) => (await world.culvert.loadOf(kind)).streams;
  return Promise.all(KINDS.map(of));
}
