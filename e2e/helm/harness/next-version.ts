import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CHARTS, type Chart } from "./helm.ts";

export const NEXT_VERSION = "999.0.0";

/** Writes a copy of a chart that is its next version, and returns where it is. */
export function nextVersion(chart: Chart, parent: string): string {
  const folder = join(parent, chart);
  cpSync(join(CHARTS, chart), folder, { recursive: true });
  const file = join(folder, "Chart.yaml");
  const text = readFileSync(file, "utf8").replace(/^(version|appVersion): .*$/gm, `$1: ${NEXT_VERSION}`);
  writeFileSync(file, text);
  return folder;
}
