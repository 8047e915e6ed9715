import assert from "node:assert/strict";
import { test } from "node:test";
import { readableLine } from "./logger.ts";

test("a record is one line: the message, then each field that says something", () => {
  const record = {
    ...{ level: "info", time: "2026-01-01T00:00:00Z", name: "culvert-server", msg: "connection closed" },
    ...{ cluster: "blue", agent: undefined, caller: "", dialMs: 1.5, bytesUp: 0, sni: ["a", "b"] },
    reason: 'the "peer" has gone',
  };
  assert.equal(
    readableLine(record),
    String.raw`connection closed  cluster=blue dialMs=1.5 bytesUp=0 sni=["a","b"] reason="the \"peer\" has gone"`,
  );
});

test("a message without fields stands alone", () => {
  assert.equal(readableLine({ level: "info", name: "x", msg: "closed" }), "closed");
});

test("an error shows its stack on lines of its own", () => {
  const err = { type: "Error", message: "bad", stack: "Error: bad\n    at here" };
  assert.equal(readableLine({ msg: "oops", port: 1, err }), "oops  port=1\nError: bad\n    at here");
});
