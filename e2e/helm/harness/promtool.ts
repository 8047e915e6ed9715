import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { TempDir } from "../../harness/temp.ts";

/** Values of each series, one a minute, in the notation of promtool: `0x10 1x10`. */
export type Series = Readonly<Record<string, string>>;

/** Throws what promtool objects to in the rules; `rules` is the `spec` of a PrometheusRule. */
export function checkRules(rules: unknown): void {
  using folder = new TempDir();
  promtool("check", "rules", write(folder, "rules.json", rules));
}

/** Throws where these series make other alerts fire in that minute than the ones named. */
export function checkFiring(rules: unknown, series: Series, minute: number, alerts: readonly string[]): void {
  using folder = new TempDir();
  const firing = {
    expr: 'group by (alertname) (ALERTS{alertstate="firing"})',
    eval_time: `${minute}m`,
    exp_samples: alerts.map((alertname) => ({ labels: `{alertname="${alertname}"}`, value: 1 })),
  };
  const input = Object.entries(series).map(([name, values]) => ({ series: name, values }));
  const tests = {
    rule_files: [write(folder, "rules.json", rules)],
    evaluation_interval: "1m",
    tests: [{ interval: "1m", input_series: input, promql_expr_test: [firing] }],
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
