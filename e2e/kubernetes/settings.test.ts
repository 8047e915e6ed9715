import assert from "node:assert/strict";
import { test } from "node:test";
import { NEWEST } from "./assets.ts";
import { readSettings } from "./settings.ts";

test("without arguments all lanes are run once, on the newest version", () => {
  const lanes = ["uds", "tcp", "grpc", "grpc-stock", "connect-stock", "mixed", "direct"];
  const usual = { kubernetes: NEWEST, lanes, full: false, only: "", repeat: 1, write: false };
  assert.deepEqual(readSettings([], false), usual);
  assert.deepEqual(readSettings([], true), { ...usual, full: true });
});

test("arguments that mean nothing are refused with a sentence", () => {
  assert.deepEqual(readSettings(["--lanes", "tcp", "--repeat=3"], false).lanes, ["tcp"]);
  assert.throws(() => readSettings(["--lanes", "tcp,udp"], false), /no lane "udp"/);
  assert.throws(() => readSettings(["--repeat", "0"], false), /--repeat 0 is not an odd number/);
  assert.throws(() => readSettings(["--listener", "tcp"], false), /--listener/);
});

test("half a run is not written down", () => {
  const { write, full } = readSettings(["--write", "--repeat=3"], false);
  assert.deepEqual({ write, full }, { write: true, full: true });
  assert.throws(() => readSettings(["--write"], false), /looked at more than once/);
  assert.throws(() => readSettings(["--write", "--only", "cp"], false), /all checks on all lanes/);
  assert.throws(() => readSettings(["--write", "--lanes", "uds"], false), /all checks on all lanes/);
});
