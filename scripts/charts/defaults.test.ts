import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultsOf } from "./defaults.ts";
import { parseValues } from "./values-file.ts";

test("each value is in a list, and maps that take certain keys only hold their values", () => {
  const text = `
image:
  # -- Tag.
  tag: ""
# -- Free keys.
resources:
  limits: {memory: 1Mi}
# -- Hosts.
hosts: []
`;
  assert.deepEqual(defaultsOf(parseValues(text, "values.yaml")), {
    image: { tag: [""] },
    resources: [{ limits: { memory: "1Mi" } }],
    hosts: [[]],
  });
});
