import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Row } from "./rows.ts";
import type { Settings } from "./settings.ts";

const FOLDER = fileURLToPath(new URL("results", import.meta.url));

/** Appends the run as one JSON line, with what one must know to compare it with another; answers the file. */
export function record(rows: readonly Row[], settings: Settings, tookSeconds: number): string {
  const now = new Date();
  const [cpu] = cpus();
  const run = {
    at: now.toISOString(),
    commit: git("rev-parse", "--short", "HEAD"),
    modified: git("status", "--porcelain") !== "",
    node: process.version,
    cpu: cpu?.model ?? "unknown",
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    settings,
    tookSeconds: Math.round(tookSeconds),
    rows: rows.map(({ group, label, unit, figures, goals }) => ({
      measure: `${group}: ${label}`,
      unit,
      ...Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, Number(value.toPrecision(4))])),
      ...(goals.length > 0 ? { goals: goals.map(({ text, met }) => ({ text, met: met ?? null })) } : {}),
    })),
  };
  mkdirSync(FOLDER, { recursive: true });
  const file = join(FOLDER, `${run.at.slice(0, 10)}.jsonl`);
  appendFileSync(file, `${JSON.stringify(run)}\n`);
  return file;
}

function git(...args: string[]): string {
  try {
    return execFileSync("git", args, { cwd: FOLDER, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "unknown"; // no commit yet, or no repository around an unpacked archive
  }
}
