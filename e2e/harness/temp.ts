import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PREFIX = "culvert-e2e-";
const STALE_MS = 3_600_000;
let swept = false;

/**
 * A folder for one test, inside another one or in the system's; removed when disposed. Folders that failed runs left
 * behind longer than an hour ago are removed too.
 */
export class TempDir implements Disposable {
  readonly path: string;

  constructor(parent = tmpdir()) {
    sweepStale();
    mkdirSync(parent, { recursive: true });
    this.path = mkdtempSync(join(parent, PREFIX));
  }

  /** A path inside. Unix socket paths are limited to 107 bytes, so keep names short. */
  file(name: string): string {
    return join(this.path, name);
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** Removes folders of runs that never got to clean up; once per process. */
function sweepStale(): void {
  if (swept) return;
  swept = true;
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue;
    const path = join(tmpdir(), name);
    try {
      if (Date.now() - statSync(path).mtimeMs > STALE_MS) rmSync(path, { recursive: true, force: true });
    } catch {
      // Another run removes it at the same time.
    }
  }
}
