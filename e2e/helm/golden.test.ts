import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { version as ownVersion } from "../../shared/basics/program.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { type Installation, render } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { examples } from "./harness/installations.ts";

const GOLDEN = join(ROOT, "e2e/helm/golden");
/**
 * `WRITE_GOLDEN=1 npm run e2e -- helm/golden` writes what the charts render now; read the difference before you commit
 * it.
 */
const WRITE = process.env["WRITE_GOLDEN"] === "1";

describe("what the examples render is what was looked at", { skip: helmMissing() }, () => {
  for (const example of examples()) test(example.name, () => compare(example));

  test("each golden file is of an example", () => {
    const names = examples().map(({ name }) => `${name}.yaml`);
    const others = existsSync(GOLDEN) ? readdirSync(GOLDEN).filter((file) => !names.includes(file)) : [];
    if (WRITE) for (const file of others) rmSync(join(GOLDEN, file));
    else assert.deepEqual(others, []);
  });
});

async function compare(example: Installation): Promise<void> {
  const rendered = ofAnyRelease((await render(example)).yaml);
  const file = join(GOLDEN, `${example.name}.yaml`);
  if (WRITE) {
    mkdirSync(GOLDEN, { recursive: true });
    writeFileSync(file, rendered);
    return;
  }
  const looked = existsSync(file) ? readFileSync(file, "utf8") : "";
  if (looked !== rendered) assert.fail(`${difference(file, rendered)}\nWRITE_GOLDEN=1 npm run e2e -- helm/golden`);
}

/** Without what another release of culvert would change. */
function ofAnyRelease(yaml: string): string {
  const version = new RegExp(`(?<![\\d.])${ownVersion().replaceAll(".", "\\.")}(?![\\d.])`, "g");
  return yaml.replaceAll(version, "VERSION").replaceAll(/^(\s*checksum\/.*: )\S+$/gm, "$1CHECKSUM");
}

function difference(file: string, text: string): string {
  const { stdout } = spawnSync("diff", ["-uN", "--label=golden", "--label=rendered", file, "-"], { input: text });
  return String(stdout);
}
