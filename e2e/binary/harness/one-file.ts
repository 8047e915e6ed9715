import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../../shared/runtime/testing/project.ts";
import { requireBuilt } from "../../harness/processes.ts";
import { digestOf } from "../../kubernetes/go-build.ts";

export interface OneFileOptions {
  readonly folder: string;
  readonly platform?: string | undefined;
}

/** As `npm run build:binary` makes it, of the dist/ that is there. */
export async function buildOneFile(options: OneFileOptions): Promise<string> {
  requireBuilt();
  const script = join(ROOT, "scripts/binary.mjs");
  const { buildBinary }: { buildBinary(options: OneFileOptions): string } = await import(script);
  return buildBinary(options);
}

/** The executable of this dist/ for a platform, or for this machine; it is built once, and replaces older ones. */
export async function oneFile(platform?: string): Promise<string> {
  requireBuilt();
  const others = ["scripts/binary.mjs", "docs/errors.md", "package-lock.json"].map((path) =>
    readFileSync(join(ROOT, path), "utf8"),
  );
  const cache = join(ROOT, ".cache/one-file", platform ?? "here");
  const folder = join(cache, digestOf(join(ROOT, "dist"), ...others));
  const file = join(folder, "culvert");
  if (existsSync(file)) return file;
  for (const old of existsSync(cache) ? readdirSync(cache) : []) rmSync(join(cache, old), { recursive: true });
  return await buildOneFile({ folder, platform });
}
