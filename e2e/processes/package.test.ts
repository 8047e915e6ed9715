import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { promisify } from "node:util";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { requireBuilt } from "../harness/processes.ts";
import { TempDir } from "../harness/temp.ts";

const run = promisify(execFile);
const MANIFEST = JSON.parse(read("package.json"));
/** The largest file today holds what makes certificates, 1.4 MB, of 5 MB in all. */
const MAX_FILE_BYTES = 2 * 1024 * 1024;
const MAX_TOTAL_BYTES = 8 * 1024 * 1024;

interface Packed {
  readonly filename: string;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string; readonly size: number }[];
}

before(requireBuilt);

test("the package has what runs and what is read, and no test, helper, source or map", async () => {
  using dir = new TempDir();
  const { files, unpackedSize } = await pack(dir.path);
  const paths = files.map(({ path }) => path);
  const wanted =
    /^(dist\/[^.]+\.js|dist\/ui\/[a-z]+\.(html|css|svg)|dist\/revision\.json|docs\/.+\.md|docs\/(?:audit\.schema|figures)\.json|README\.md|CHANGELOG\.md|LICENSE|package\.json)$/;
  assert.deepEqual(
    paths.filter((path) => !wanted.test(path) || /(^|\/)testing/.test(path)),
    [],
  );
  for (const path of ["dist/cli/main.js", "docs/errors.md", "README.md", "CHANGELOG.md", "LICENSE"]) {
    assert.ok(paths.includes(path), `${path} is missing`);
  }
  assert.deepEqual(
    files.filter(({ size }) => size > MAX_FILE_BYTES),
    [],
  );
  assert.ok(unpackedSize < MAX_TOTAL_BYTES, `${unpackedSize} bytes`);
});

test("the SBOM lists exactly the packages that package-lock.json has for run time", async () => {
  const { stdout } = await run("npm", ["run", "-s", "sbom"], { cwd: ROOT, maxBuffer: 64 * 1024 * 1024 });
  const bom = JSON.parse(stdout) as Bom;
  assert.equal(bom.bomFormat, "CycloneDX");
  assert.equal(bom.metadata.component.purl, `pkg:npm/%40culvert-gateway/culvert@${MANIFEST.version}`);
  const { packages } = JSON.parse(read("package-lock.json")) as Lock;
  const locked = Object.entries(packages).filter(([path, { dev }]) => path !== "" && dev !== true);
  const expected = new Set(locked.map(([path, { version }]) => `${path.split("node_modules/").at(-1)}@${version}`));
  assert.deepEqual(bom.components.map((component) => component["bom-ref"]).toSorted(), [...expected].toSorted());
});

interface Bom {
  readonly bomFormat: string;
  readonly metadata: { readonly component: { readonly purl: string } };
  readonly components: readonly { readonly "bom-ref": string }[];
}

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly dev?: boolean }>>;
}

/** Without scripts: `prepare` would make dist/ anew while other tests run it. */
async function pack(destination: string): Promise<Packed> {
  const args = ["pack", "--ignore-scripts", "--json", "--pack-destination", destination];
  const { stdout } = await run("npm", args, { cwd: ROOT, maxBuffer: 16 * 1024 * 1024 });
  const [packed] = JSON.parse(stdout) as Packed[];
  return packed ?? assert.fail(stdout);
}

function read(name: string): string {
  return readFileSync(join(ROOT, name), "utf8");
}
