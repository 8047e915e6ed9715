import assert from "node:assert/strict";
import { test } from "node:test";
import { Scrape } from "./scrape.ts";

const TEXT = `# HELP ends_total Ends.
# TYPE ends_total counter
ends_total{outcome="ok",cluster="blue"} 3
ends_total{outcome="dial_timeout",cluster="blue"} 1
# TYPE open gauge
open 7
`;

test("a series is found by its labels in any order, and without labels by its name", () => {
  const scrape = new Scrape(TEXT);
  assert.equal(scrape.value("ends_total", { cluster: "blue", outcome: "ok" }), 3);
  assert.equal(scrape.value("open"), 7);
});

test("what has not been counted yet is 0, and a metric that is not there is an error", () => {
  const scrape = new Scrape(TEXT);
  assert.equal(scrape.value("ends_total", { cluster: "blue", outcome: "caller_gone" }), 0);
  assert.throws(() => scrape.value("ends_total"), /shows no ends_total$/);
  assert.throws(() => scrape.value("ends", { outcome: "ok" }), /shows no ends \{outcome\}/);
  assert.throws(() => scrape.value("closed"), /shows no closed/);
});
