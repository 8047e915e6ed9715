import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type Comparison, FIGURES_FILE, figuresText, section, withComparison } from "./page.ts";

const RUN: Comparison = {
  at: "2026-01-02T03:04:05.000Z",
  commit: "abc1234",
  modified: true,
  node: "v24.1.0",
  runtime: "v24.1.0",
  openssl: "3.5.0",
  cpu: "a processor",
  cores: 2,
  memoryGiB: 4,
  kernel: "6.1",
  load: 0.04,
  peers: [{ name: "frp", version: "0.1" }],
  settings: { rounds: 3, seconds: 2 },
  rows: [
    { label: "dials", unit: "/s", figures: { culvert: 300, konnectivity: 400, bare: 900 } },
    { label: "echo", unit: "ms", figures: { culvert: 0.2, frp: 0.1, corked: 0.25 } },
  ],
};
const TEXT = section(RUN);

test("the page has a line for each row, with what Node alone does and the ratio to Konnectivity", () => {
  assert.ok(TEXT.split("\n").includes("| dials | /s | 300 | 400 |  |  | 900 | 0.75 |"));
  assert.ok(TEXT.split("\n").includes("| echo | ms | 0.200 |  |  | 0.100 | 0.250 |  |"));
});

test("the page says when, on what machine and of what programs its figures are", () => {
  const [sentence = ""] = TEXT.split("\n\n").filter((paragraph) => paragraph.startsWith("2026-"));
  for (const said of ["2026-01-02", "2 × a processor", "Node.js v24.1.0", "0.0", "abc1234 and changes", "frp: 0.1"]) {
    assert.ok(sentence.includes(said), said);
  }
});

test("a run takes the place of the one with the same major version, or on Bun: the newest Node.js comes first, Bun last", () => {
  const on = (runtime: string): Comparison => ({ ...RUN, runtime });
  const runs = ["bun 1.4.5", "v20.1.0", "v24.1.0", "v20.2.0", "bun 1.4.6"].map(on);
  const kept = runs.reduce(withComparison, [] as Comparison[]);
  assert.deepEqual(kept, ["v24.1.0", "v20.2.0", "bun 1.4.6"].map(on));
  assert.match(section(on("bun 1.4.6")), /^### Bun\n[\s\S]*Node\.js v24\.1\.0 [\s\S]*and changes, on bun 1\.4\.6;/);
});

test("docs/figures.json is written as the bench writes it, a line for each row", () => {
  const text = readFileSync(FIGURES_FILE, "utf8");
  assert.equal(figuresText(JSON.parse(text) as object), text);
  assert.ok(text.split("\n").filter((line) => line.includes('"label":')).length >= 60);
});
