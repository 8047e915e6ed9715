import { readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";

/** The product files that a column of the first table below a heading of docs/architecture.md lists. */
export function listedFiles(heading: string, column: number): string[] {
  const page = readFileSync(join(ROOT, "docs/architecture.md"), "utf8");
  const [, section = ""] = page.split(`\n## ${heading}\n`);
  const rows = section.split("\n## ")[0]?.match(/^\|.*$/gm) ?? [];
  const cells = rows.map((row) => row.split("|")[column + 1] ?? "");
  const files = cells.flatMap((cell) => [...cell.matchAll(/`([\w/-]+\.ts)`/g)].map(([, file = ""]) => file));
  return [...new Set(files)];
}

/** How often the function that ran most did so during `run`, for each product file in which one ran. */
export async function productCalls(run: () => Promise<void>): Promise<Map<string, number>> {
  const inspector = new Session();
  inspector.connect();
  await inspector.post("Profiler.enable");
  await inspector.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await run();
  const { result } = await inspector.post("Profiler.takePreciseCoverage");
  inspector.disconnect();
  const most = new Map<string, number>();
  for (const { url, functions } of result) {
    const file = /\/((?:server|agent|shared)\/[\w/-]+)\.[jt]s$/.exec(url)?.[1];
    if (file === undefined || /node_modules|\/testing\//.test(url)) continue;
    const count = Math.max(0, ...functions.map(({ ranges: [range] }) => range?.count ?? 0));
    if (count > 0) most.set(`${file}.ts`, count);
  }
  return most;
}
