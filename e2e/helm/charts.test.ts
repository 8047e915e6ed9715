import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parse } from "yaml";
import { version as ownVersion } from "../../shared/basics/program.ts";
import { CHARTS, type Chart, helm, type Values } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { ODD_AGENTS } from "./harness/odd-agents.ts";
import { ODD_SERVERS } from "./harness/odd-servers.ts";

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
