import type { Check, Seen, Stage } from "../check.ts";
import type { Lane } from "../world/lanes.ts";
import { Site } from "./installed-site.ts";
import { HYPERSHIFT, KKP, type Variant, WITH_CERTIFICATES, WITH_TOKENS } from "./installed-variants.ts";

/** Only values are given: commands, files, variables, users, ports and probes are what helm has installed. */
export const INSTALLED_CHARTS: readonly Check[] = [
  check("agents with tokens", "uds", (stage) => installed(stage, WITH_TOKENS, (site) => site.helmTests())),
  check("the example of KKP, a sidecar", "uds", (stage) => installed(stage, KKP, used)),
  check("the example of HyperShift", "tcp", (stage) => installed(stage, HYPERSHIFT, used)),
  check("agents with certificates, and an upgrade", "tcp", (stage) =>
    installed(stage, WITH_CERTIFICATES, async (site) => {
      await used(site);
      await site.upgrade();
    }),
  ),
];

async function used(site: Site): Promise<void> {
  await site.kubectlThroughIt();
  await site.helmTests();
}

function check(name: string, lane: Lane, run: Check["run"]): Check {
  return { name: `charts installed by helm: ${name}`, deadlineMs: 120_000, lanes: [lane], run };
}

async function installed(stage: Stage, variant: Variant, use: (site: Site) => Promise<void>): Promise<Seen> {
  // It has the ports that the installed server takes.
  await stage.world.culvert.stop();
  using folder = stage.world.folder();
  const site = new Site(stage, folder.path, variant);
  try {
    await site.install();
    await use(site);
    return { printed: await site.end() };
  } catch (error) {
    throw new Error(`${(error as Error).message}\n${site.logs()}`);
  } finally {
    await site.stop();
  }
}
