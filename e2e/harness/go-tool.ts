import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { cachedFolder, cachedPath, go } from "../kubernetes/go-build.ts";

/** A program of another project that tests run; `package` is the Go package that it is built from. */
export interface GoTool {
  readonly name: string;
  /** The release that CI uses. */
  readonly version: string;
  readonly package: string;
}

export const HELM: GoTool = { name: "helm", version: "3.22.0", package: "helm.sh/helm/v3/cmd/helm" };
export const ACTIONLINT: GoTool = {
  name: "actionlint",
  version: "1.7.12",
  package: "github.com/rhysd/actionlint/cmd/actionlint",
};

/** Path of the program in the cache; builds it with Go where it is missing, which takes a minute or two. */
export async function installGoTool(tool: GoTool, signal: AbortSignal): Promise<string> {
  const folder = await cachedFolder(cacheName(tool), async (unfinished) => {
    console.error(`building ${tool.name} ${tool.version}, once on this machine`);
    const args = ["install", "-trimpath", `${tool.package}@v${tool.version}`];
    await go(unfinished, args, signal, { GOBIN: unfinished });
  });
  return join(folder, tool.name);
}

/** Path of the program in the cache, or else of the one on the PATH. */
export function findGoTool(tool: GoTool): string | undefined {
  const folders = [cachedPath(cacheName(tool)), ...(process.env["PATH"] ?? "").split(delimiter)];
  return folders.map((folder) => join(folder, tool.name)).find((path) => existsSync(path));
}

/** Why tests that need the program cannot run here; on CI that is a failure. */
export function goToolMissing(tool: GoTool): string | false {
  if (findGoTool(tool) !== undefined) return false;
  const reason = `${tool.name} is not installed: node --import tsx e2e/harness/install-tools.ts builds it with Go`;
  if (process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  return reason;
}

function cacheName({ name, version }: GoTool): string {
  return `${name}-${version}`;
}
