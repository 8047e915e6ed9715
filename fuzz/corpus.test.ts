import { test } from "node:test";
import { storedInputs } from "./corpus.ts";
import { countAllocations, examine } from "./examine.ts";
import { TARGETS } from "./targets.ts";

for (const target of TARGETS) {
  test(`${target.name}: all that was found stays as it should be`, async (t) => {
    t.after(countAllocations());
    for (const seed of target.seeds) await examine(target, seed);
    for (const { path, bytes } of storedInputs(target.name)) {
      try {
        await examine(target, bytes);
      } catch (error) {
        throw new Error(`${path}: ${error}`, { cause: error });
      }
    }
  });
}
