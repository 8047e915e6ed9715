import assert from "node:assert/strict";
import { test } from "node:test";
import { section, withSection } from "./page.ts";
import type { Row } from "./rows.ts";
import { readSettings } from "./settings.ts";

const ROWS: readonly Row[] = [
  { group: "dials", label: "dials", unit: "/s", figures: { culvert: 300, konnectivity: 400, bare: 900 }, goals: [] },
  { group: "traffic", label: "echo", unit: "ms", figures: { culvert: 0.2, frp: 0.1, corked: 0.25 }, goals: [] },
];
const ABOUT = {
  at: "2026-01-02T03:04:05.000Z",
  commit: "abc1234",
  modified: true,
  node: "v24.1.0",
  openssl: "3.5.0",
  cpu: "a processor",
  cores: 2,
  memoryGiB: 4,
  kernel: "6.1",
  load: 0.04,
  peers: [{ name: "frp", version: "0.1" }],
} as const;
const SETTINGS = readSettings(["--peers", "programs"]);
const TEXT = section(ROWS, SETTINGS, ABOUT);
const MARKED = ["<!-- figures:begin (npm run bench -- --peers DIR --page) -->", "<!-- figures:end -->"] as const;

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

test("figures take the place of earlier ones with the same Node.js, and the newest Node.js comes first", () => {
  const empty = `before\n${MARKED[0]}\nnone yet\n${MARKED[1]}\nbehind\n`;
  const old = section(ROWS, SETTINGS, { ...ABOUT, node: "v20.1.0" });
  const again = section(ROWS, SETTINGS, { ...ABOUT, node: "v20.2.0" });
  const page = [old, TEXT, again].reduce(withSection, empty);
  assert.equal(page, `before\n${MARKED[0]}\n\n${TEXT}\n\n${again}\n\n${MARKED[1]}\nbehind\n`);
  assert.throws(() => withSection("a page without a place for them", TEXT), /no place for figures/);
});
