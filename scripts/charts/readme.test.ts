import assert from "node:assert/strict";
import { test } from "node:test";
import { withValueTables } from "./readme.ts";
import { parseValues } from "./values-file.ts";

const VALUES = parseValues(
  `# @section Things
# -- This | that.
a: x
b:
  # -- A list.
  c: []
# @section More
# -- Any keys.
d: {e: 1}
`,
  "values.yaml",
);

test("the README gets a table for each section and a row for each value, between the markers only", () => {
  const readme = "before\n<!-- values:begin -->\nold\n<!-- values:end -->\nafter\n";
  assert.equal(
    withValueTables(readme, "README.md", VALUES),
    `before
<!-- values:begin -->

### Things

| value | default | what it does |
| --- | --- | --- |
| \`a\` | \`"x"\` | This \\| that. |
| \`b.c\` | \`[]\` | A list. |

### More

| value | default | what it does |
| --- | --- | --- |
| \`d\` | \`{"e":1}\` | Any keys. |

<!-- values:end -->
after
`,
  );
});

test("a README without the markers is refused", () => {
  for (const readme of ["", "<!-- values:begin -->", "<!-- values:end -->\n<!-- values:begin -->"]) {
    assert.throws(() => withValueTables(readme, "README.md", VALUES), {
      message: /README.md needs a line <!-- values:begin/,
    });
  }
});
