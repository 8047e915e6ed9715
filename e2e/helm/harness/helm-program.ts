import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { cachedFolder, cachedPath, go } from "../../kubernetes/go-build.ts";

/** The release that CI uses. */
const VERSION = "3.22.0";
const CACHED = `helm-${VERSION}`;

/** Path of the helm in the cache; builds it with Go where it is missing, which takes a minute or two. */
export async function installHelm(signal: AbortSignal): Promise<string> {
  const folder = await cachedFolder(CACHED, async (unfinished) => {
    console.error(`building helm ${VERSION}, once on this machine`);
    await go(unfinished, ["install", "-trimpath", `helm.sh/helm/v3/cmd/helm@v${VERSION}`], signal, {
      GOBIN: unfinished,
    });
  });
  return join(folder, "helm");
}

/** Path of the helm in the cache, or else of the one on the PATH. */
export function findHelm(): string | undefined {
  const folders = [cachedPath(CACHED), ...(process.env["PATH"] ?? "").split(delimiter)];
  return folders.map((folder) => join(folder, "helm")).find((path) => existsSync(path));
}

/** Why charts cannot be rendered here; on CI that is a failure. */
export function helmMissing(): string | false {
  if (findHelm() !== undefined) return false;
  const reason = "helm is not installed: node --import tsx e2e/helm/install.ts builds it with Go";
  if (process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  return reason;
}
