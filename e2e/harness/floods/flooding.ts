import { spawnSync } from "node:child_process";
import { constants, setPriority } from "node:os";

const REPORT_MS = 200;
const LONGEST_MS = 120_000;

/**
 * The frame of each flood's script: its arguments, the lowest priority, a report of its counters as a line of JSON now
 * and then, and an end at SIGTERM, or after `ms` whoever forgets it. `begin` resolves when the traffic flows.
 *
 * Without `goesLast` it keeps the priority of the test: for one whose work is done before anything is measured.
 */
export async function flooding<Args extends object, Counts extends Record<string, number | string>>(
  counts: Counts,
  begin: (args: Args, counts: Counts) => void | Promise<void>,
  { goesLast = true } = {},
): Promise<void> {
  if (goesLast) goLast();
  const args = JSON.parse(process.argv[2] ?? "{}") as Args & { readonly ms?: number };
  const report = (): void => console.log(JSON.stringify(counts));
  const end = (): void => {
    report();
    process.exit(0);
  };
  process.on("SIGTERM", end);
  setTimeout(end, Math.min(args.ms ?? LONGEST_MS, LONGEST_MS));
  // A peer that cuts the flood must not end it.
  process.on("uncaughtException", (error) => console.error(`flood: ${error.message}`));
  await begin(args, counts);
  console.log("flooding");
  setInterval(report, REPORT_MS);
}

/**
 * Where chrt(1) is, it runs only while no other process wants the processor (SCHED_IDLE): with the lowest nice value
 * alone it still takes slices of several milliseconds from the server that is measured.
 */
function goLast(): void {
  setPriority(constants.priority.PRIORITY_LOW);
  spawnSync("chrt", ["--idle", "--all-tasks", "--pid", "0", String(process.pid)]);
}
