import assert from "node:assert/strict";
import { test } from "node:test";
import { defineOptions, type OptionTable, option } from "../../shared/config/options.ts";
import { knownNames, unknownMentions } from "./mentions.ts";

const table = defineOptions({
  command: "server",
  summary: "",
  envPrefix: "CULVERT_SERVER",
  example: [],
  options: { dialTimeoutMs: option.duration("4s", "", { konnectivity: "--backend-dial-timeout" }) },
  foreign: {},
  resolve: () => {},
}) as unknown as OptionTable;
const known = knownNames(
  [table],
  ['program.command("pki").option("--dir <folder>", "").requiredOption("-n, --days <n>")'],
);

test("flags, variables and options that culvert has are known", () => {
  const text = `
---
args: [--config=/x, --dial-timeout=4s, "--backend-dial-timeout", --dir, --days=1]
# kube-apiserver's --egress-selector-config-file, and a--b
env: [{name: CULVERT_SERVER_DIAL_TIMEOUT}, {name: CULVERT_SERVER_CONFIG}]
{{- $_ := set $config "dial-timeout" 4 }}
`;
  assert.deepEqual(unknownMentions(text, "x.yaml", known), []);
});

test("one that culvert does not have is told once, with the file", () => {
  const table: [text: string, what: string][] = [
    ["args: [--dial-timeot=4s, --dial-timeot]", "the flag --dial-timeot"],
    ["name: CULVERT_SERVER_DIAL_TIMEOT", "the environment variable CULVERT_SERVER_DIAL_TIMEOT"],
    ["name: CULVERT_SERVER_DIAL_TIMEOUT_MS", "the environment variable CULVERT_SERVER_DIAL_TIMEOUT_MS"],
    ['{{- $_ := set $config "dial-timeot" 4 }}', "the option dial-timeot"],
  ];
  for (const [text, what] of table) {
    assert.deepEqual(unknownMentions(text, "x.yaml", known), [`x.yaml names ${what}, which culvert does not have.`]);
  }
});
