import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findGoTool, HELM } from "../../e2e/harness/go-tool.ts";

// Each function makes files of a release in the folder `out`, checks them, and returns a sentence about them.

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const EXAMPLES = join(ROOT, "helm/examples");
/** This machine, as scripts/binary.mjs names platforms. */
const OWN_PLATFORM = `${process.platform}-${process.arch}`;
const DEADLINE_MS = 120_000;
/** The list of checksums, as `sha256sum` writes and reads it. */
const CHECKSUMS = "SHA256SUMS";

/** The npm package. It is installed into an empty folder, and its demo has to make a CONNECT. */
export async function npmPackage(out: string, version: string): Promise<string> {
  // Without scripts: `prepare` would build dist/ again.
  const packed = await run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", out]);
  const [{ filename = "" } = {}] = JSON.parse(packed) as { readonly filename?: string }[];
  const folder = await mkdtemp(join(tmpdir(), "culvert-release-"));
  try {
    const quiet = ["--prefer-offline", "--no-audit", "--no-fund", "--omit=dev"];
    await run("npm", ["install", "--prefix", folder, ...quiet, join(out, filename)], folder);
    const culvert = join(folder, "node_modules/.bin/culvert");
    expect(await run(culvert, ["--version"], folder), `${version}\n`);
    expect(await run(culvert, ["explain", "dial_timeout"], folder), "### dial_timeout\n");
    expect(await run(culvert, ["demo", "--once"], folder), "200 Connection Established");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return `${filename}: installed into an empty folder, it explains a code and runs the demo`;
}

/** The charts. Helm must have no objection to them with the values of the examples. */
export async function charts(out: string, version: string): Promise<string> {
  const helm = findGoTool(HELM);
  if (helm === undefined) throw new Error("helm is missing: node --import tsx e2e/harness/install-tools.ts builds it");
  for (const chart of ["culvert-server", "culvert-agent"]) {
    await run(helm, ["package", join(ROOT, "helm", chart), "--destination", out]);
  }
  const examples = await readdir(EXAMPLES);
  for (const example of examples) {
    const chart = example.endsWith("-agent.yaml") ? "culvert-agent" : "culvert-server";
    const args = ["lint", "--strict", "--values", join(EXAMPLES, example), join(out, `${chart}-${version}.tgz`)];
    await run(helm, args);
  }
  return `culvert-server-${version}.tgz, culvert-agent-${version}.tgz: helm accepts ${examples.length} examples`;
}

/** The list of the packages that run (SBOM). */
export async function sbom(out: string, version: string): Promise<string> {
  const text = await run("npm", ["run", "-s", "sbom"]);
  const { components, metadata } = JSON.parse(text) as Bom;
  expect(metadata.component.purl, `@${version}`);
  if (components.length === 0) throw new Error("the SBOM lists no package");
  const name = `culvert-${version}.cdx.json`;
  await writeFile(join(out, name), text);
  return `${name}: ${components.length} packages`;
}

interface Bom {
  readonly components: readonly unknown[];
  readonly metadata: { readonly component: { readonly purl: string } };
}

/**
 * The program as one executable file, packed, for this machine alone or for every platform. The file of this machine
 * has to say its version and to run the demo.
 */
export async function oneFile(out: string, version: string, isForAll: boolean): Promise<string> {
  const { buildBinary, PLATFORMS } = (await import(join(ROOT, "scripts/binary.mjs"))) as BinaryScript;
  const names: string[] = [];
  const folder = await mkdtemp(join(tmpdir(), "culvert-release-"));
  try {
    for (const platform of isForAll ? PLATFORMS : [OWN_PLATFORM]) {
      const isOwn = platform === OWN_PLATFORM;
      const target = join(folder, platform);
      // Without a platform nothing is fetched.
      const file = buildBinary(isOwn ? { folder: target } : { folder: target, platform });
      if (isOwn) {
        expect(await run(file, ["--version"], folder), `${version}\n`);
        expect(await run(file, ["demo", "--once"], folder), "200 Connection Established");
      }
      const name = `culvert-${version}-${platform}.tar.gz`;
      await run("tar", ["-czf", join(out, name), "-C", target, "culvert"]);
      names.push(name);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return `${names.join(", ")}: the program of this machine runs the demo`;
}

interface BinaryScript {
  readonly PLATFORMS: readonly string[];
  buildBinary(options: { readonly folder: string; readonly platform?: string }): string;
}

/** The checksums of all files in the folder, which `sha256sum` verifies as whoever downloads them does. */
export async function checksums(out: string): Promise<string> {
  const names = (await readdir(out)).filter((name) => name !== CHECKSUMS).sort();
  const lines = names.map(async (name) => {
    const digest = createHash("sha256").update(await readFile(join(out, name)));
    return `${digest.digest("hex")}  ${name}\n`;
  });
  await writeFile(join(out, CHECKSUMS), (await Promise.all(lines)).join(""));
  await run("sha256sum", ["--check", "--strict", CHECKSUMS], out);
  return `${CHECKSUMS}: sha256sum verifies ${names.length} files`;
}

/** Runs a program to its end and returns what it wrote to stdout. */
export async function run(command: string, args: readonly string[], cwd = ROOT): Promise<string> {
  const options = { cwd, timeout: DEADLINE_MS, maxBuffer: 64 * 1024 * 1024 };
  try {
    return (await promisify(execFile)(command, args, options)).stdout;
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { readonly stdout?: string; readonly stderr?: string };
    throw new Error(`${command} ${args.join(" ")} has failed:\n${stdout}${stderr}`, { cause: error });
  }
}

function expect(text: string, part: string): void {
  if (!text.includes(part)) throw new Error(`"${part.trim()}" was expected in:\n${text}`);
}
