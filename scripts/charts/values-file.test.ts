import assert from "node:assert/strict";
import { test } from "node:test";
import { parseValues } from "./values-file.ts";

const TEXT = `# About this file, which is nobody's description.

# @section First
# -- How many
# of them.
count: 2

image:
  # -- Where it is.
  # @schema {pattern: "^x"}
  repository: xyz
  # -- Its tag.
  tag: ""

# -- What it takes.
resources:
  limits:
    memory: 1Mi

# @section Second

# -- A port.
# @option health-port
port: 8092
`;

test("values have the descriptions and tags of the comments above them", () => {
  const [count, image, resources, port] = parseValues(TEXT, "values.yaml");
  assert.deepEqual([count?.description, count?.section, count?.default], ["How many of them.", "First", 2]);
  const [repository, tag] = image?.children ?? [];
  assert.deepEqual([repository?.path, repository?.description], ["image.repository", "Where it is."]);
  assert.deepEqual(repository?.schema, { pattern: "^x" });
  assert.deepEqual([tag?.path, tag?.description, tag?.default], ["image.tag", "Its tag.", ""]);
  assert.deepEqual([port?.option, port?.section], ["health-port", "Second"]);
  assert.deepEqual(resources?.default, { limits: { memory: "1Mi" } });
});

test("a map that is described as a whole has no keys of its own", () => {
  const [, image, resources] = parseValues(TEXT, "values.yaml");
  assert.deepEqual(resources?.children, []);
  assert.equal(image?.children.length, 2);
});

test("a values.yaml that users could not read is refused with the place and the cure", () => {
  const table: [string, RegExp][] = [
    ["a: 1", /^values.yaml: a needs a description: "# -- What it does."$/],
    ["a:\n  # -- Described.\n  b: 1\n  c: 2", /^values.yaml: a.c needs a description/],
    ["# -- One.\n# @shcema {}\na: 1", /^values.yaml: a: there is no @shcema; use @section, @option or @schema.$/],
    ["a: [", /^values.yaml is not valid YAML/],
    ["[]", /^values.yaml has no keys.$/],
  ];
  for (const [text, message] of table) {
    assert.throws(() => parseValues(text, "values.yaml"), { name: "ChartError", message }, text);
  }
});
