/**
 * Writes dist/revision.json: the git commit that dist/ was built from. The environment variable CULVERT_REVISION says
 * it where there is no git, as in the build of an image; without either, no file is written and the revision is
 * unknown.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FILE = join(ROOT, "dist/revision.json");

const revision = process.env["CULVERT_REVISION"] || revisionOfCheckout();
rmSync(FILE, { force: true });
if (revision !== undefined) {
  mkdirSync(join(ROOT, "dist"), { recursive: true });
  writeFileSync(FILE, `${JSON.stringify({ revision })}\n`);
}

function revisionOfCheckout() {
  const [folder, commit] = git("rev-parse", "--show-toplevel", "HEAD")?.split("\n") ?? [];
  // Unpacked inside another project's checkout, the commit would be that project's.
  if (folder === undefined || commit === undefined || realpathSync(folder) !== realpathSync(ROOT)) return undefined;
  return git("status", "--porcelain", "--untracked-files=no") === "" ? commit : `${commit}-dirty`;
}

function git(...parameters) {
  const { status, stdout } = spawnSync("git", parameters, { cwd: ROOT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : undefined;
}
