import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { TempDir } from "../harness/temp.ts";

const picturesIn = (folder: string) => readdirSync(folder).filter((name) => name.endsWith(".png"));

test("npm run screenshots makes each picture of the status page that the pages show", async () => {
  using dir = new TempDir();
  await promisify(execFile)(process.execPath, ["--import", "tsx", "e2e/page/screenshots.ts"], {
    cwd: ROOT,
    env: { ...process.env, CULVERT_IMAGES: dir.path },
    timeout: 150_000,
  });
  assert.deepEqual(picturesIn(dir.path), picturesIn(join(ROOT, "docs/images")));
  for (const name of picturesIn(dir.path)) {
    const picture = readFileSync(dir.file(name));
    assert.equal(picture.subarray(1, 4).toString(), "PNG", name);
    assert.ok(picture.length > 10_000, `${name}: ${picture.length} bytes`);
  }
});
