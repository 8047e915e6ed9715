import assert from "node:assert/strict";
import { test } from "node:test";
import { CREDENTIAL_FAULTS, OUTCOMES } from "../shared/outcomes.ts";
import { CloseCode } from "../shared/wire/handshake.ts";
import { codesOf, explainedCodes, runExplain } from "./explain.ts";

function explain(code?: string): string {
  let text = "";
  runExplain(code, (part) => (text += part));
  return text;
}

test("every outcome of a CONNECT and every close code of ours is explained", () => {
  const codes = explainedCodes();
  const ours = Object.values(CloseCode).filter((code) => code >= 4_400);
  const missing = [...Object.keys(OUTCOMES), ...ours.map(String)].filter((code) => !codes.has(code));
  assert.deepEqual(missing, []);
});

test("so is what a doctor or a log calls a fault of the agent's side", () => {
  const codes = explainedCodes();
  for (const word of ["proxy_auth_refused", "intercepted", "wrong_name", "kdc_silent", "callers_port", "age_limit"])
    assert.ok(codes.has(word), word);
  assert.equal(codes.has("acked"), false, "a field of the protocol is no fault");
});

test("every word for what is wrong with a credential is explained", () => {
  const codes = explainedCodes();
  assert.deepEqual(
    CREDENTIAL_FAULTS.filter((word) => !codes.has(word)),
    [],
  );
});

test("an outcome is shown with its status and all its paragraphs, and how to read on", () => {
  const text = explain("dial_timeout");
  assert.match(text, /^dial_timeout \(docs\/errors\.md\): 504, the target did not answer in time\n\n/);
  assert.match(text, /packets are dropped\s+somewhere\. [\s\S]*\n\nDo: check the way from the agent to the target;/);
  assert.equal(explain("DIAL-TIMEOUT"), text);
});

test("the error type of an answer's Proxy-Status is shown as the outcomes that have it", () => {
  assert.equal(explain("connection_refused"), explain("dial_refused"));
  assert.match(explain("connection_timeout"), /^dial_timeout [\s\S]*\n\nagent_timeout \(docs\/errors\.md\)/);
});

test("an HTTP status is shown as the outcomes that are answered with it, to a caller or an agent", () => {
  assert.equal(explain("407"), explain("unauthenticated"));
  assert.equal(explain("401"), explain("unauthenticated"));
  assert.match(explain("504"), /^dial_timeout [\s\S]*\n\nagent_timeout \(docs\/errors\.md\)/);
  assert.throws(() => explain("undefined"), /There is no code/);
});

test("the further columns of a table keep their headings", () => {
  assert.match(
    explain("4421"),
    /\n\nthe link is another server's, and was not carried there\n- `result` of \S+: `foreign_link`\n- what an agent does: dials again /,
  );
});

test("a code that several places tell of is shown with all of them", () => {
  assert.match(
    explain("4409"),
    /`already_connected`: [\s\S]*\n\n4409 \(docs\/errors\.md\)\n\n`another running process/,
  );
  assert.match(explain("dns"), /\(docs\/doctor\.md\)[\s\S]*\(docs\/corporate-networks\.md\)/);
});

test("a table reads as a list, links and emphasis as plain text, and no line is wider than a terminal", () => {
  const text = explain("no_agent");
  assert.match(text, /\n- close code 4429: `--max-agents` is reached\n/);
  assert.match(text, /\n- `uplink refused`, 401 or 403: the server does not accept/);
  assert.doesNotMatch(text, /\*\*|\]\(|^\|/m);
  for (const line of text.split("\n")) assert.ok(line.length <= 100, line);
});

/** Words that only a reader of the whole page understands: "see below", "the limits above", "the same, by". */
const OUTSIDE =
  /\b(?:see|as) (?:above|below)\b|\b(?:above|below)(?: \(|[.,;:)]|$)|\bsee `|^(?:the same|the rest|it|he)\b/i;

test("what is said of a code is understood without the rest of the page", () => {
  for (const [code, places] of explainedCodes()) {
    for (const text of places.flatMap(({ inShort, paragraphs }) => [inShort, ...paragraphs])) {
      assert.doesNotMatch(text, OUTSIDE, code);
    }
  }
});

test("without a code all are listed, a line for each", () => {
  const lines = explain().trimEnd().split("\n");
  assert.equal(lines.length, explainedCodes().size);
  assert.ok(lines.some((line) => /^no_agent +503, no agent is connected$/.test(line)));
  for (const line of lines) assert.ok(line.length <= 100, line);
});

test("an unknown code names the nearest, or where all stand", () => {
  assert.throws(() => explain("dial-timeot"), {
    name: "ConfigError",
    message: /"dial-timeot": did you mean dial_timeout\?$/,
  });
  for (const short of ["nope", "4420"])
    assert.throws(() => explain(short), { message: /culvert explain alone lists them$/ });
  assert.throws(() => explain("blue"), { message: /"blue": culvert explain alone lists them$/ });
  assert.throws(() => explain("__proto__"), { message: /There is no code "__proto__"/ });
});

test("rows about other things are no codes", () => {
  const page = "### limited\n\nText.\n\n## More\n\n| `--flag` | x |\n| `a word` | x |\n| 4 GiB | x |\n| `dns` | y |\n";
  const codes = codesOf("p", page).map(([code]) => code);
  assert.deepEqual(codes, ["limited", "dns"]);
});
