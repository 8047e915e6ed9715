import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parse } from "yaml";
import { CHART_NAMES, CHARTS, type Chart, render, type Values } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";

/** Values that an installation needs. */
const NEEDED: Readonly<Record<Chart, Values>> = {
  "culvert-server": {},
  "culvert-agent": { servers: ["wss://a.example.com"], auth: { certificate: { existingSecret: "agent" } } },
};

describe("keys with nothing behind them have their defaults,", { skip: helmMissing() }, () => {
  for (const chart of CHART_NAMES) {
    const defaults: Values = parse(readFileSync(join(CHARTS, chart, "values.yaml"), "utf8"));
    const needed = NEEDED[chart];
    const rendered = async (values: Values) => (await render({ name: chart, chart, values })).yaml;

    test(`whole sections of ${chart}`, async () => {
      const empty = Object.fromEntries(Object.keys(defaults).map((key) => [key, needed[key] ?? null]));
      assert.equal(await rendered(empty), await rendered(needed));
    });

    test(`single values of ${chart}`, async () => {
      assert.equal(await rendered(emptied(defaults, needed)), await rendered(needed));
    });
  }

  test("whichever template helm renders first", () => {
    for (const chart of CHART_NAMES) {
      const folder = join(CHARTS, chart, "templates");
      for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
        if (!/(^|\/)[^_][^/]*\.(yaml|txt)$/.test(file)) continue;
        const first = `{{- include "${chart}.defaults" . -}}\n`;
        assert.ok(readFileSync(join(folder, file), "utf8").startsWith(first), `${chart}/templates/${file}`);
      }
    }
  });

  test("but what is below a map with keys of anybody's choice is taken away", async () => {
    const { pods } = await render({
      name: "no ids",
      chart: "culvert-server",
      values: { podSecurityContext: { runAsUser: null } },
    });
    const { securityContext = {} } = pods.find(({ owner }) => owner.kind === "Deployment")?.spec ?? assert.fail();
    assert.deepEqual([securityContext["runAsUser"], securityContext["runAsGroup"]], [undefined, 65_532]);
  });
});

/** Maps whose keys users choose, and lists, are values. */
const OPEN = /^(resources|podSecurityContext|securityContext|.*[pP]robe|labels|annotations)$/;

/** Null for each value, but those needed. */
function emptied(defaults: Values, needed: Values): Values {
  const entries = Object.entries(defaults).map(([key, value]) => {
    const given = needed[key];
    const isMap = typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;
    if (isMap && !OPEN.test(key)) return [key, emptied(value as Values, (given ?? {}) as Values)];
    return [key, given ?? null];
  });
  return Object.fromEntries(entries);
}
