import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { inMain } from "../world/kubectl.ts";
import { lanesWith } from "../world/lanes.ts";
import { type Recording, recordingSvg, THEMES } from "./recording-svg.ts";

const LINES = 16;
const IN_POD = `for i in $(seq ${LINES}); do echo "line $i at $(date +%T)"; sleep 0.5; done`;
/** The cut comes after this many lines, and lasts this long. */
const CUT_AFTER = 4;
const AWAY_MS = 2_500;
const NOTICED_MS = 10_000;
const NAME = "exec-while-cut";

/**
 * The recording in the README: the check makes it in every run, and `npm run recording` keeps the pictures, by the
 * variable CULVERT_IMAGES.
 */
export const RECORDED_EXEC: Check = {
  name: "exec that prints while the connection is cut, recorded for the README",
  deadlineMs: 60_000,
  lanes: lanesWith("culvert"),
  run: recorded,
};

async function recorded(stage: Stage): Promise<Seen> {
  const recording = await record(stage);
  using temporary = stage.world.folder();
  const folder = process.env["CULVERT_IMAGES"] ?? temporary.path;
  mkdirSync(folder, { recursive: true });
  for (const theme of THEMES) {
    const svg = recordingSvg(recording, theme);
    expect(svg.split("<text").length > LINES, "a picture with all lines", svg);
    writeFileSync(join(folder, `${NAME}-${theme.name}.svg`), svg);
  }
  const pauses = recording.events.map(({ ms }, i) => ms - (recording.events[i - 1]?.ms ?? 0));
  return { printed: `${LINES} lines in order`, seconds: Math.max(...pauses) / 1000 };
}

/** Lines of kubectl and changes of the network, each with its real time. */
async function record({ world, kubectl }: Stage): Promise<Recording> {
  const { network, culvert } = world;
  const events: { ms: number; kind: "output" | "cut" | "back"; text: string }[] = [];
  const started = performance.now();
  const note = (kind: "output" | "cut" | "back", text: string) =>
    events.push({ ms: performance.now() - started, kind, text });
  const arrived = () => events.filter(({ kind }) => kind === "output").length;
  const onStdout = (chunk: Buffer) => {
    for (const line of chunk.toString().trimEnd().split("\n")) note("output", line);
  };
  const work = kubectl.must(inMain("stand-in", ["sh", "-c", IN_POD]), { onStdout });
  work.catch(() => {}); // it is awaited below
  await waitFor(() => arrived() >= CUT_AFTER, { deadlineMs: 30_000, everyMs: 20, what: `${CUT_AFTER} lines` });
  await network.reset();
  note("cut", "the network resets the agent's connection and refuses new ones");
  const inCut = arrived();
  try {
    const suspended = async () => (await culvert.resuming()) === 1;
    await waitFor(suspended, { deadlineMs: NOTICED_MS, everyMs: 20, what: "a suspended link" });
    await sleep(AWAY_MS);
    // The cut must still last here: the link may have resumed before `close` returns.
    expect(arrived() === inCut, "no line during the cut", `${arrived() - inCut} lines`);
  } finally {
    await network.close();
  }
  note("back", "the network is back");
  await work;
  note("output", "");
  const lines = events.filter(({ text }) => text.startsWith("line ")).map(({ text }) => text.split(" at ")[0]);
  const wanted = Array.from({ length: LINES }, (_, i) => `line ${i + 1}`);
  expect(lines.join() === wanted.join(), "each line once, in order", lines.join());
  const command = `kubectl exec stand-in -- sh -c '${IN_POD}'`;
  return { command, events, caption: `kube-apiserver ${world.assets.version}, real times: npm run recording` };
}
