import assert from "node:assert/strict";
import { test } from "node:test";
import { OUTCOMES } from "../shared/outcomes.ts";
import { runExplain } from "./explain.ts";

function explain(code?: string): string {
  let text = "";
  runExplain(code, (part) => (text += part));
  return text;
}

test("every outcome is explained by its section of docs/errors.md, and by no other", () => {
  for (const code of Object.keys(OUTCOMES)) {
    const headings = explain(code).match(/^#{1,3} .*$/gm);
    assert.deepEqual(headings, [`### ${code}`]);
  }
});

test("a code may be written in capitals and with dashes", () => {
  assert.match(explain("DIAL-TIMEOUT"), /^### dial_timeout\n\n[\s\S]*packets are dropped/);
});

test("the error type of an answer's Proxy-Status is explained as the outcomes that have it", () => {
  assert.equal(explain("connection_refused"), explain("dial_refused"));
  assert.match(explain("connection_timeout"), /^### dial_timeout\n[\s\S]*^### agent_timeout\n/m);
});

test("an HTTP status is explained as the outcomes that are answered with it, to a caller or an agent", () => {
  assert.equal(explain("407"), explain("unauthenticated"));
  assert.equal(explain("401"), explain("unauthenticated"));
  assert.match(explain("504"), /^### dial_timeout\n[\s\S]*^### agent_timeout\n/m);
});

test("without a code all outcomes are listed, a line for each", () => {
  const lines = explain().trimEnd().split("\n");
  assert.equal(lines.length, Object.keys(OUTCOMES).length);
  assert.ok(lines.some((line) => /^no_agent +503, no agent is connected$/.test(line)));
  for (const line of lines) assert.ok(line.length <= 100, line);
});

test("an unknown code names the nearest, or where all stand", () => {
  assert.throws(() => explain("dial-timeot"), {
    name: "ConfigError",
    message: /"dial-timeot": did you mean dial_timeout\?$/,
  });
  assert.throws(() => explain("4403"), { message: /^4403 is a close code .* docs\/link-protocol\.md$/ });
  for (const unknown of ["9999", "undefined", "__proto__"]) {
    assert.throws(() => explain(unknown), { message: /culvert explain alone lists them$/ });
  }
});
