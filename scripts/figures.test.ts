import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { majorOf } from "../e2e/bench/page.ts";
import { shortNumber } from "../e2e/bench/rows.ts";
import { ROOT } from "../shared/runtime/testing/project.ts";
import { type Figures, quotable, withFigures } from "./figures.ts";

const FIGURES = JSON.parse(readFileSync(join(ROOT, "docs/figures.json"), "utf8")) as Figures;
const TEXTS = quotable(FIGURES);

test("a quoted figure goes from the least to the greatest value of its rows in all runs on Node.js", () => {
  const onNode = FIGURES.comparison.filter((run) => majorOf(run) > 0);
  const values = onNode.map(
    ({ rows }) => rows.find(({ label }) => label === "server start → listening")?.figures.culvert ?? Number.NaN,
  );
  assert.ok(values.length >= 2);
  const rows = [{ label: "server start → listening", unit: "ms", figures: { culvert: 1 } }];
  const onBun = onNode.slice(0, 1).map((run) => ({ ...run, runtime: "bun 1.4.5", rows }));
  for (const comparison of [onNode, [...onNode, ...onBun]]) {
    const texts = quotable({ ...FIGURES, comparison });
    assert.equal(
      texts.get("server-start-ms"),
      [Math.min(...values), Math.max(...values)].map((value) => value.toFixed(0)).join(" to "),
    );
  }
});

test("a figure of one Node.js is a single number", () => {
  assert.match(TEXTS.get("server-memory-node-24") ?? "", /^\d+$/);
});

test("the text between the marks of a figure becomes that of docs/figures.json, and the rest stays", () => {
  const page = "| memory | <!--=size-->1 KiB<!--/--> a stream, <!--=size--><!--/--> |";
  assert.equal(
    withFigures(page, new Map([["size", "6 KiB"]]), []),
    "| memory | <!--=size-->6 KiB<!--/--> a stream, <!--=size-->6 KiB<!--/--> |",
  );
});

test("a page that quotes an unknown figure is refused", () => {
  assert.throws(() => withFigures("<!--=no-such-->1<!--/-->", TEXTS, []), /no figure no-such/);
});

test("every row that a figure is computed from is in every run of the comparison", () => {
  for (const { comparison, quotes } of [FIGURES]) {
    const labels = comparison.map(({ rows }) => new Set(rows.map(({ label }) => label)));
    for (const { from } of Object.values(quotes))
      for (const row of from) assert.ok(labels.every((all) => all.has(row)));
  }
});

test("rows of the comparison that README shows have the figures of the newest Node.js", () => {
  const rows = new Map(FIGURES.comparison[0]?.rows.map((row) => [row.label, row]));
  const shown = readFileSync(join(ROOT, "README.md"), "utf8").matchAll(/^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|/gm);
  const compared = [...shown].flatMap(([, label = "", ...cells]) => {
    const row = rows.get(label);
    return row === undefined ? [] : [{ cells, row }];
  });
  assert.ok(compared.length >= 6);
  for (const { cells, row } of compared) {
    const { culvert = Number.NaN, konnectivity = Number.NaN } = row.figures;
    assert.deepEqual(
      cells,
      [culvert, konnectivity].map((value) => `${shortNumber(value)} ${row.unit}`),
    );
  }
});
