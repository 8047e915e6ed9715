import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { ROOT } from "../shared/runtime/testing/project.ts";

const CORPUS = join(ROOT, "fuzz", "corpus");
/** Inputs that have shown a bug stand apart: they are never left out. */
const FINDINGS = "found";

/** An input as a file has it. */
export interface StoredInput {
  /** Relative to the project's folder. */
  readonly path: string;
  readonly bytes: Buffer;
}

/** Inputs that earlier runs have kept for a target, findings included. */
export function storedInputs(target: string): StoredInput[] {
  return [join(CORPUS, target), join(CORPUS, target, FINDINGS)].filter(existsSync).flatMap((folder) =>
    readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => ({ path: relative(ROOT, join(folder, name)), bytes: readFileSync(join(folder, name)) })),
  );
}

/** The path of the file, relative to the project's folder. */
export function storeInput(target: string, bytes: Buffer): string {
  return store(join(CORPUS, target), bytes);
}

/** The same for an input that shows a bug. */
export function storeFinding(target: string, bytes: Buffer): string {
  return store(join(CORPUS, target, FINDINGS), bytes);
}

function store(folder: string, bytes: Buffer): string {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, createHash("sha256").update(bytes).digest("hex").slice(0, 16));
  writeFileSync(path, bytes);
  return relative(ROOT, path);
}
