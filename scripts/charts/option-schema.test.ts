import assert from "node:assert/strict";
import { test } from "node:test";
import { Ajv } from "ajv";
import { agentOptions } from "../../agent/context/options.ts";
import { routerOptions } from "../../router/options.ts";
import { serverOptions } from "../../server/options/options.ts";
import { flagName, type Option, type OptionTable, option } from "../../shared/config/options.ts";
import { optionDescription, optionSchema } from "./option-schema.ts";

const TABLES = [serverOptions, agentOptions, routerOptions] as unknown as OptionTable[];
const ROWS = TABLES.flatMap(({ command, options }) =>
  Object.entries(options).map(([key, row]) => ({
    name: `${command} --${flagName(key, row)}`,
    row: row as Option<unknown>,
  })),
);
const SAMPLES = [
  ...["", "0", "0s", "8s", "1h30m", "1.5h", ".5s", "8", "-1s", "1d", "ten", "0660", "0o660", "660", "0999", "660x"],
  ...["64KiB", "1.5MiB", "4096", "64KB", "1 Mi", "a", "a b", "host", "host:80", "http://host", "10.0.0.1", "[fd00::1]"],
  ...["TLSv1.2", "info", "loud", "auto", true, false, 0, 1, -1, 80, 65_535, 65_536, 1.5, 1_000_000],
];

/** Says whether the schema of an option accepts a value. It is compiled once, because that takes milliseconds. */
function validator(row: Option<unknown>): (value: unknown) => boolean {
  return new Ajv().compile(optionSchema(row));
}

/** A value as a YAML file has it, of a text that an option writes. */
function fromText(row: Option<unknown>, texts: readonly string[]): unknown {
  if (row.separator !== undefined) return texts;
  return ["number", "port", "true|false"].includes(row.kind) ? JSON.parse(texts[0] ?? "") : texts[0];
}

test("the schema of every option takes the option's default", () => {
  for (const { name, row } of ROWS) assert.ok(validator(row)(fromText(row, row.write(row.default))), name);
});

test("what the schema of an option takes, the command takes, but for the bounds of durations and sizes", () => {
  for (const { name, row } of ROWS) {
    for (const sample of SAMPLES.filter(validator(row))) {
      try {
        row.read([String(sample)]);
      } catch (error) {
        assert.match((error as Error).message, /at least|at most/, `${name} takes ${JSON.stringify(sample)} by schema`);
        assert.ok(["duration", "size"].includes(row.kind), name);
      }
    }
  }
});

test("each kind of option refuses what is no value of it", () => {
  const table: [Option<unknown>, good: unknown[], bad: unknown[]][] = [
    [option.duration("8s", ""), ["0", 0, "5ns", "500ms", "1h30m"], [8, "8", "8 s", "-1s", ""]],
    [option.size("64KiB", ""), ["64KiB", "1.5Mi", "1Gi", "1GiB", 4096], ["64kb", "1TiB", -1, true]],
    [option.integer(5, "", { min: 1, max: 10 }), [1, 10], [0, 11, "5", 1.5]],
    [option.port(80, ""), [0, 65_535], [-1, 65_536, "80"]],
    [option.boolean(false, ""), [true, false], ["true", 1]],
    [option.fileMode("0660", ""), ["0660", "0o660"], [432, "0999"]],
    [option.oneOf(["a", "b"], "a", ""), ["a", "b"], ["c", ""]],
    [option.identifier("", ""), ["", "a.b:c-1"], ["a b", "a/b"]],
    [option.address("", ""), ["", "host", "10.0.0.1", "fd00::1", "[fd00::1]"], ["host:80", "http://host"]],
    [option.list([], ""), [[], ["a", "b"]], ["a", [1]]],
  ];
  for (const [row, good, bad] of table) {
    const accepts = validator(row);
    for (const value of good) assert.ok(accepts(value), `${row.kind} takes ${JSON.stringify(value)}`);
    for (const value of bad) assert.ok(!accepts(value), `${row.kind} refuses ${JSON.stringify(value)}`);
  }
});

test("a description has the help, the bounds and the default", () => {
  const row = option.duration("8s", "How long.", { min: "1s", max: "1h" });
  assert.equal(optionDescription(row), "How long. Takes 1s to 1h. Default: 8s.");
  const list = option.list([], "Which ones.", { defaultText: "all" });
  assert.equal(optionDescription(list), "Which ones. Default: all.");
});
