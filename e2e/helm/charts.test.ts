import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parse } from "yaml";
import { version as ownVersion } from "../../shared/basics/program.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { CHARTS, type Chart, helm, type Values } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { ODD_AGENTS } from "./harness/odd-agents.ts";
import { ODD_SERVERS } from "./harness/odd-servers.ts";

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
  readonly fieldConfig: { readonly defaults: { readonly noValue?: string } };
}

/** The least that a chart needs. */
const LEAST: Readonly<Record<Chart, Values>> = {
  "culvert-server": ODD_SERVERS["nothing set"] ?? assert.fail(),
  "culvert-agent": ODD_AGENTS["a certificate"] ?? assert.fail(),
};

describe("charts", { skip: helmMissing() }, () => {
  test("helm has no objection to the examples", async () => {
    const folder = join(CHARTS, "examples");
    for (const name of readdirSync(folder)) {
      const chart: Chart = name.endsWith("-agent.yaml") ? "culvert-agent" : "culvert-server";
      const said = await helm(["lint", "--strict", `--values=${join(folder, name)}`, join(CHARTS, chart)]);
      assert.equal(said.code, 0, `${name}: ${said.stdout}${said.stderr}`);
    }
  });

  test("panels of the dashboard that stay empty without names of clusters say how to fill them", () => {
    const page = readFileSync(join(ROOT, "docs/metrics.md"), "utf8");
    const leftOut = [...page.matchAll(/^\| `(culvert_server_\w+)` .*\| left out \|$/gm)].map(([, name = ""]) => name);
    const file = join(CHARTS, "culvert-server/dashboards/culvert-server.json");
    const { panels } = JSON.parse(readFileSync(file, "utf8")) as { readonly panels: readonly Panel[] };
    const empty = panels.filter(({ targets = [] }) =>
      targets.some(({ expr }) => leftOut.some((name) => new RegExp(`\\b${name}\\b`).test(expr))),
    );
    assert.ok(empty.length > 0);
    for (const { title, fieldConfig } of empty)
      assert.match(fieldConfig.defaults.noValue ?? "", /health-shows-/, title);
  });

  for (const [chart, values] of Object.entries(LEAST)) {
    test(`helm has no objection to ${chart}`, async () => {
      const said = await helm(["lint", "--strict", "--values=-", join(CHARTS, chart)], JSON.stringify(values));
      assert.equal(said.code, 0, said.stdout + said.stderr);
    });

    test(`${chart} has the version of the package`, () => {
      const { version, appVersion } = parse(readFileSync(join(CHARTS, chart, "Chart.yaml"), "utf8"));
      assert.deepEqual([version, appVersion], [ownVersion(), ownVersion()]);
    });
  }
});
