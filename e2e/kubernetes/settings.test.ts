import assert from "node:assert/strict";
import { test } from "node:test";
import { NEWEST } from "./assets.ts";
import { readSettings } from "./settings.ts";

test("without arguments everything is run once, on the newest version", () => {
  const lanes = ["uds", "tcp", "direct"];
  assert.deepEqual(readSettings([]), { kubernetes: NEWEST, lanes, only: "", repeat: 1, write: false });
});

test("arguments that mean nothing are refused with a sentence", () => {
  assert.deepEqual(readSettings(["--lanes", "tcp", "--repeat=3"]).lanes, ["tcp"]);
  assert.throws(() => readSettings(["--lanes", "tcp,udp"]), /no lane "udp"/);
  assert.throws(() => readSettings(["--repeat", "0"]), /--repeat 0 is not an odd number/);
  assert.throws(() => readSettings(["--listener", "tcp"]), /--listener/);
});

test("half a run is not written down", () => {
  assert.equal(readSettings(["--write", "--repeat=3"]).write, true);
  assert.throws(() => readSettings(["--write"]), /looked at more than once/);
  assert.throws(() => readSettings(["--write", "--only", "cp"]), /all checks on all lanes/);
  assert.throws(() => readSettings(["--write", "--lanes", "uds"]), /all checks on all lanes/);
});
