import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../../../shared/runtime/testing/project.ts";
import type { Render } from "../helm.ts";
import { dataOf, type KubeObject, nameOf } from "../objects.ts";

const PAGE = readFileSync(join(ROOT, "docs/metrics.md"), "utf8");
/** Suffixes that Prometheus adds to a histogram's name. */
const OF_HISTOGRAM = /_(?:bucket|count|sum)$/;

/** Alerts and dashboards ask for metrics that culvert has: those of the generated page. */
export function metricsExist({ objects }: Render): string[] {
  return objects.flatMap((object) => {
    const names = new Set(textOf(object).match(/\bculvert_[a-z_]+/g));
    const unknown = [...names].filter((name) => !isKnown(name) && !isKnown(name.replace(OF_HISTOGRAM, "")));
    return unknown.map((name) => `${nameOf(object)} asks for ${name}, which docs/metrics.md does not have`);
  });
}

function textOf(object: KubeObject): string {
  if (object.kind === "PrometheusRule") return JSON.stringify(object);
  return object.kind === "ConfigMap" ? Object.values(dataOf(object)).join("\n") : "";
}

function isKnown(name: string): boolean {
  return PAGE.includes(`\`${name}\``);
}
