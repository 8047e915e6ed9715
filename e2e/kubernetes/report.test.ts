import assert from "node:assert/strict";
import { test } from "node:test";
import type { Row } from "./check.ts";
import { rowLine, section, withSection } from "./report.ts";

const COPY = { check: "cp", goal: "time", printed: "as sent" } as const;
const ROWS: readonly Row[] = [
  { ...COPY, lane: "uds", seconds: 2.8, dials: 3 },
  { ...COPY, lane: "tcp", seconds: 3.2, dials: 3 },
  { ...COPY, lane: "direct", seconds: 2 },
  { check: "dials", goal: "dial", lane: "uds", seconds: 9, p50Ms: 2.5, dials: 500, printed: "500 dials" },
  { check: "dials", goal: "dial", lane: "direct", seconds: 9, p50Ms: 0.1, printed: "500 dials" },
  { check: "agent killed", trouble: true, lane: "uds", seconds: 1.1, recoveredSeconds: 0.5, printed: "no | agent" },
];
const REPORT = { kubernetes: "1.36.3", circumstances: "On a machine.", rows: ROWS };

test("each check is a line with its lanes side by side, and what it costs more than directly", () => {
  const lines = section(REPORT).split("\n");
  assert.ok(lines.includes("| cp | 2.00 s | 2.80 s (1.40 ×) | 3.20 s (1.60 ×) | 3 / 3 | `as sent` |"));
  assert.ok(lines.includes("| dials | p50 0.10 ms | p50 2.50 ms (+2.4 ms) |  | 500 / · | `500 dials` |"));
});

test("only lanes that have run are columns", () => {
  const [head] = section({ ...REPORT, rows: [{ ...COPY, lane: "mixed", seconds: 1 }] }).match(/^\| check .*$/m) ?? [];
  assert.equal(head, "| check | gRPC, both agents | dials | printed |");
});

test("what is over its goal is said", () => {
  const lines = section(REPORT).split("\n");
  assert.ok(lines.includes("- met: cp, unix socket, 1.40 ×"));
  assert.ok(lines.includes("- **not met**: cp, TCP + mTLS, 1.60 ×"));
  assert.ok(lines.includes("- met: dials, unix socket, +2.4 ms"));
});

test("a check that does not hold is marked on screen and in the table", () => {
  const failed: Row = { check: "exec", lane: "tcp", seconds: 1, printed: "", failure: "expected a b, and saw c" };
  assert.match(rowLine(failed), /^✗ TCP \+ mTLS +exec: 1\.00 s │ expected a b, and saw c$/);
  assert.ok(section({ ...REPORT, rows: [failed] }).includes("| exec | **failed** | · |  |"));
});

test("a version's section takes the place of its earlier one, and the newest version comes first", () => {
  const older = { ...REPORT, kubernetes: "1.34.4" };
  const once = withSection("# Results\n\nPreface.\n", older);
  const both = withSection(withSection(once, REPORT), { ...older, circumstances: "On another machine." });
  assert.deepEqual(both.match(/^##? .*$/gm), ["# Results", "## Kubernetes 1.36.3", "## Kubernetes 1.34.4"]);
  assert.ok(both.includes("On another machine.") && both.split("On a machine.").length === 2);
  assert.equal(withSection(both, REPORT), both);
});
