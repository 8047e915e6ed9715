import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { BUILD_DEADLINE_MS, cachedFolder, digestOf, go } from "../kubernetes/go-build.ts";

const MODULE = join(ROOT, "e2e/kubernetes/go/konnectivity");
const FLAGS = ["-trimpath", "-buildvcs=false", "-ldflags", "-s -w"];

/** Paths of Konnectivity's own server and agent. */
export interface KonnectivityPrograms {
  readonly server: string;
  readonly agent: string;
}

/** Both, built from their Go module once for each version of it. */
export async function konnectivityPrograms(
  signal: AbortSignal = AbortSignal.timeout(BUILD_DEADLINE_MS),
): Promise<KonnectivityPrograms> {
  const folder = await cachedFolder(`konnectivity-${digestOf(MODULE, ...FLAGS)}`, async (unfinished) => {
    console.error("building konnectivity-server and konnectivity-agent, once");
    // Its go.mod names their commands as tools.
    await go(MODULE, ["build", ...FLAGS, "-o", `${unfinished}/`, "tool"], signal);
  });
  return { server: join(folder, "server"), agent: join(folder, "agent") };
}
