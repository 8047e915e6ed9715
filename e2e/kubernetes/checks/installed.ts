import type { Check, Seen, Stage } from "../check.ts";
import { INSTALLED } from "../world/addresses.ts";
import type { Lane } from "../world/egress.ts";
import { Site, type Variant } from "./installed-site.ts";

const VALUES = { agents: { hosts: [INSTALLED.agents] }, options: { "drain-timeout": "1s" } };
const DEPLOYMENT = "deployment/culvert-server";
const WITH_CERTIFICATES: Variant = { values: VALUES, server: DEPLOYMENT, agentsNamespace: "culvert" };
const WITH_TOKENS: Variant = {
  values: { ...VALUES, agents: { ...VALUES.agents, token: { enabled: true, namespace: "kube-system" } } },
  server: DEPLOYMENT,
  agentsNamespace: "kube-system",
};
/** With Konnectivity's ports and its socket, as KKP has them. */
const SIDECAR: Variant = {
  values: {
    ...VALUES,
    mode: "sidecar",
    sidecar: { podSelector: { app: "kube-apiserver" } },
    ports: { preset: "konnectivity" },
  },
  server: "configmap/culvert-server-sidecar",
  agentsNamespace: "culvert",
};

/** Only values are written for it: commands, files, variables, users, ports and probes are what helm has installed. */
export const INSTALLED_CHARTS: readonly Check[] = [
  check("agents with tokens", "uds", (stage) => installed(stage, WITH_TOKENS, (site) => site.helmTests())),
  check("a sidecar of kube-apiserver", "uds", (stage) => installed(stage, SIDECAR, (site) => site.kubectlThroughIt())),
  check("agents with certificates, and an upgrade", "tcp", (stage) =>
    installed(stage, WITH_CERTIFICATES, async (site) => {
      await site.kubectlThroughIt();
      await site.helmTests();
      await site.upgrade();
    }),
  ),
];

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
