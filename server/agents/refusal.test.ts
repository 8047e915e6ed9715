import assert from "node:assert/strict";
import { test } from "node:test";
import { CulvertError, OUTCOMES, type OutcomeCode } from "../../shared/outcomes.ts";
import { answerTo, headersOf, TurnedAway } from "./refusal.ts";

const PATH = "/culvert/v1/tunnel";

for (const [code, status] of [
  ["unauthenticated", 401],
  ["forbidden", 403],
  ["limited", 429],
  ["draining", 503],
] as const) {
  test(`an agent hears ${status} for ${code}, at the level of the table of outcomes`, () => {
    const answer = answerTo(new CulvertError(code, "a sentence\nof two lines"), PATH);
    assert.equal(answer.status, status);
    assert.match(answer.sentence, /^a sentence of two lines(: come back in 1 s)?$/);
    assert.equal(answer.level, OUTCOMES[code].level);
  });
}

test("every outcome has a status that an agent can be told, and only draining says when to come back", () => {
  for (const code of Object.keys(OUTCOMES) as OutcomeCode[]) {
    const { status, headers } = answerTo(new CulvertError(code, "x"), PATH);
    assert.ok(status >= 400 && status < 600, code);
    assert.deepEqual(Object.keys(headers), code === "draining" ? ["retry-after"] : []);
  }
});

test("an agent that is turned away hears in how many seconds to come back", () => {
  const { status, sentence, headers, level } = answerTo(new TurnedAway(12_300), PATH);
  assert.deepEqual([status, headers, level], [503, { "retry-after": "13" }, "warn"]);
  assert.equal(sentence, "more agents connect than this server has time for: come back in 13 s");
  assert.deepEqual(answerTo(new TurnedAway(1), PATH).headers, { "retry-after": "1" });
});

test("what is no upgrade of an agent hears 404 or 426, which are no outcomes, and what is wanted here", () => {
  const elsewhere = answerTo("path", PATH);
  assert.deepEqual([elsewhere.status, elsewhere.level], [404, "info"]);
  assert.match(elsewhere.sentence, /agents connect at \/culvert\/v1\/tunnel/);
  const plain = answerTo("upgrade", PATH);
  assert.deepEqual([plain.status, plain.headers], [426, { upgrade: "websocket" }]);
});

test("every refusal bears the server's mark with its sentence, and says that the connection ends", () => {
  const errors = (Object.keys(OUTCOMES) as OutcomeCode[]).map((code) => new CulvertError(code, "x"));
  for (const refusal of [...errors, new TurnedAway(1), "path", "upgrade"] as const) {
    const answer = answerTo(refusal, PATH);
    const { "proxy-status": mark, connection } = headersOf(answer);
    const error = refusal instanceof CulvertError ? OUTCOMES[refusal.code].proxyStatus : "http_request_error";
    assert.deepEqual([mark, connection], [`culvert; error=${error}; details="${answer.sentence}"`, "close"]);
  }
});
