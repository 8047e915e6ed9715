import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { inMain } from "../world/kubectl.ts";
import { judgedBy } from "../world/objects.ts";
import { resumes } from "./cut-path.ts";

/** 1 Mbit/s, the uplink of a shop. */
export const SLOW_BYTES_PER_SECOND = 125_000;
/** 2 MB. */
const LINES = 180_000;

const slowly = { deadlineMs: 60_000, lanes: ["uds"] } as const;

/** Users of kubectl while the node is behind a line of 125 kB/s. Exec and webhook are asked while the logs come. */
export const SLOW_LINE: readonly Check[] = [
  { name: "a line of 125 kB/s: logs of 2 MB, no connection cut", ...slowly, beside: true, run: logs },
  { name: "a line of 125 kB/s: exec beside the logs", ...slowly, run: exec },
  { name: "a line of 125 kB/s: webhook beside the logs", ...slowly, run: webhook },
];

async function logs({ kubectl, world }: Stage): Promise<Seen> {
  const before = await resumes(world.culvert);
  const chunks: Buffer[] = [];
  const onStdout = (chunk: Buffer) => void chunks.push(chunk);
  const { seconds } = await kubectl.must(["logs", "stand-in", "-c", `past-${LINES}`], { onStdout });
  const text = Buffer.concat(chunks).toString();
  const wanted = Array.from({ length: LINES }, (_, i) => `line ${i + 1}\n`).join("");
  expect(text === wanted, `${LINES} lines in order`, `${text.length} bytes, at last ${text.slice(-100)}`);
  const cuts = (await resumes(world.culvert)) - before;
  expect(cuts === 0, "no connection of the agent that is cut", String(cuts));
  const share = text.length / seconds / SLOW_BYTES_PER_SECOND;
  expect(share > 0.6, "most of what the line carries, with what kubectl takes to start", `${share}`);
  return { printed: `${text.length} bytes, ${Math.round(100 * share)} % of what the line carries`, seconds };
}

async function exec({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(inMain("stand-in", ["echo", "beside"]));
  expect(stdout === "beside\n", "the output", stdout);
  return { printed: stdout.trim(), seconds };
}

async function webhook({ kubectl }: Stage): Promise<Seen> {
  const { code, stdout, stderr, seconds } = await kubectl.dryRun(judgedBy("stand-in"));
  expect(code === 0, "an object that is allowed", stderr);
  return { printed: stdout.trim(), seconds };
}
