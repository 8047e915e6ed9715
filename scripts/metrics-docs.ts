/**
 * Writes the tables of docs/metrics.md out of the metrics themselves; with --check only says whether they are stale.
 * Text outside the marks `<!-- server -->` … `<!-- end -->` is written by hand.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Registry } from "prom-client";
import { AgentMetrics } from "../agent/context/metrics.ts";
import { RouterMetrics } from "../router/metrics.ts";
import { ServerMetrics } from "../server/metrics/server-metrics.ts";
import { SidecarMetrics } from "../sidecars/metrics.ts";

const FILE = fileURLToPath(new URL("../docs/metrics.md", import.meta.url));

/** Where a process shows its metrics; `withoutNames`: where no cluster and no route is named. */
interface Registries {
  readonly registry: Registry;
  readonly withoutNames?: Registry;
}

const NONE = {
  connections: () => 0,
  hellos: () => 0,
  routes: () => 0,
  faults: () => 0,
  backends: () => ({ healthy: 0, avoided: 0, untried: 0 }),
};
const PROCESSES: Readonly<Record<string, Registries>> = {
  server: new ServerMetrics(),
  agent: { registry: new AgentMetrics().registry },
  router: new RouterMetrics(NONE),
  sidecar: new SidecarMetrics({ connections: () => 0, sessions: () => 0 }),
};

const written = readFileSync(FILE, "utf8");
let page = written;
for (const [name, registries] of Object.entries(PROCESSES)) {
  const mark = `<!-- ${name} -->\n`;
  const [before, rest] = page.split(mark);
  const after = rest?.split("<!-- end -->").slice(1).join("<!-- end -->");
  if (before === undefined || after === undefined) throw new Error(`docs/metrics.md has no ${mark}`);
  page = `${before}${mark}${await table(registries)}<!-- end -->${after}`;
}

if (!process.argv.includes("--check")) writeFileSync(FILE, page);
else if (written !== page) {
  console.error("docs/metrics.md is stale: run `npm run docs`.");
  process.exitCode = 1;
}

async function table({ registry, withoutNames }: Registries): Promise<string> {
  const metrics = await registry.getMetricsAsJSON();
  const ours = metrics.filter(({ name }) => /^(culvert|konnectivity)_/.test(name));
  ours.sort((one, other) => (one.name < other.name ? -1 : 1));
  const head = [
    "metric",
    "type",
    "labels",
    "meaning",
    ...(withoutNames === undefined ? [] : ["where no names are shown"]),
  ];
  const rows = ours.map(({ name, help, type }) => {
    const labels = labelsOf(registry, name);
    const row = [`\`${name}\``, String(type), labels.map((label) => `\`${label}\``).join(", "), help];
    return withoutNames === undefined ? row : [...row, shownWithoutNames(labels, labelsOf(withoutNames, name))];
  });
  return [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}

/** Empty: it has none, or is not there. */
function labelsOf(registry: Registry, name: string): readonly string[] {
  const metric = registry.getSingleMetric(name) as { readonly labelNames?: readonly string[] } | undefined;
  return metric?.labelNames ?? (metric === undefined ? ["not there"] : []);
}

function shownWithoutNames(all: readonly string[], some: readonly string[]): string {
  if (some[0] === "not there") return "left out";
  const missing = all.filter((label) => !some.includes(label));
  return missing.length === 0 ? "the same" : `without \`${missing.join("`, `")}\``;
}
