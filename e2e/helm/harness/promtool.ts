import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { TempDir } from "../../harness/temp.ts";

/** Values of each series, one a minute, in the notation of promtool: `0x10 1x10`. */
export type Series = Readonly<Record<string, string>>;

type Labels = Readonly<Record<string, string>>;

/** Throws what promtool objects to in the rules; `rules` is the `spec` of a PrometheusRule. */
export function checkRules(rules: unknown): void {
  using folder = new TempDir();
  promtool("check", "rules", write(folder, "rules.json", rules));
}

/** Throws where these series make other alerts fire in that minute than the ones named; `rules` as of one release. */
export function checkFiring(rules: unknown, series: Series, minute: number, alerts: readonly string[]): void {
  const distinct = alerts.map((alertname) => ({ alertname }));
  checkFiringBy(["alertname"], [rules], series, minute, distinct);
}

/** As `checkFiring`, with the rules of several releases, and alerts told apart by these labels. */
export function checkFiringBy(
  labels: readonly string[],
  rules: readonly unknown[],
  series: Series,
  minute: number,
  alerts: readonly Labels[],
): void {
  const firing = {
    expr: `group by (${labels.join(", ")}) (ALERTS{alertstate="firing"})`,
    eval_time: `${minute}m`,
    exp_samples: alerts.map((alert) => ({ labels: JSON.stringify(alert).replaceAll(/"(\w+)":"/g, '$1="'), value: 1 })),
  };
  runTests(rules, series, { promql_expr_test: [firing] });
}

/** Throws where the alert of this name does not fire in that minute with just these annotations `summary`. */
export function checkSummaries(
  rules: readonly { readonly description: string; readonly labels: Labels; readonly summary: string }[],
  of: { readonly alert: string; readonly rules: readonly unknown[]; readonly series: Series; readonly minute: number },
): void {
  const exp_alerts = rules.map(({ labels, description, summary }) => ({
    exp_labels: labels,
    exp_annotations: { summary, description },
  }));
  const each = { eval_time: `${of.minute}m`, alertname: of.alert, exp_alerts };
  runTests(of.rules, of.series, { alert_rule_test: [each] });
}

function runTests(rules: readonly unknown[], series: Series, what: object): void {
  using folder = new TempDir();
  const input = Object.entries(series).map(([name, values]) => ({ series: name, values }));
  const tests = {
    rule_files: rules.map((each, index) => write(folder, `rules-${index}.json`, each)),
    evaluation_interval: "1m",
    tests: [{ interval: "1m", input_series: input, ...what }],
  };
  promtool("test", "rules", write(folder, "tests.json", tests));
}

/** JSON is YAML, too. */
function write(folder: TempDir, name: string, content: unknown): string {
  const path = join(folder.path, name);
  writeFileSync(path, JSON.stringify(content));
  return path;
}

function promtool(...args: readonly string[]): void {
  const { status, stdout, stderr, error } = spawnSync("promtool", args, { encoding: "utf8", timeout: 30_000 });
  if (status !== 0) throw new Error(`promtool ${args[0]}: ${stdout}${stderr}`, { cause: error });
}
