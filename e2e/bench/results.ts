import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ON_BUN, RUNTIME } from "../harness/processes.ts";
import type { ContenderName } from "./contenders.ts";
import type { Product } from "./products/product.ts";
import type { Row } from "./rows.ts";
import type { Settings } from "./settings.ts";

const FOLDER = fileURLToPath(new URL("results", import.meta.url));

/** Where, when and of what the figures are. */
export interface Circumstances {
  readonly at: string;
  readonly commit: string;
  readonly modified: boolean;
  readonly node: string;
  /** The runtime of culvert: the Node.js above, or Bun with its version. */
  readonly runtime: string;
  readonly openssl: string;
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGiB: number;
  readonly kernel: string;
  /** Load average before the run: what else the machine had to do. */
  readonly load: number;
  readonly peers: readonly { readonly name: ContenderName; readonly version: string }[];
}

/** Asked before anything is measured. */
export function circumstances(products: readonly Product[]): Circumstances {
  return {
    at: new Date().toISOString(),
    commit: git("rev-parse", "--short", "HEAD"),
    modified: git("status", "--porcelain", "--untracked-files=no") !== "",
    node: process.version,
    runtime: ON_BUN ? `bun ${execFileSync(RUNTIME, ["--version"], { encoding: "utf8" }).trim()}` : process.version,
    openssl: process.versions.openssl,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release().split(".", 2).join("."),
    load: loadavg()[0] ?? 0,
    peers: products.flatMap(({ name, version }) => (version === undefined ? [] : [{ name, version }])),
  };
}

/** Appends the run as one JSON line, with what one must know to compare it with another; answers the file. */
export function record(rows: readonly Row[], settings: Settings, about: Circumstances, tookSeconds: number): string {
  const run = {
    ...about,
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
