import assert from "node:assert/strict";
import { test } from "node:test";
import { CulvertError } from "../../shared/outcomes.ts";
import { DEFAULT_CLUSTER } from "../options/options.ts";
import { route } from "./route.ts";

const TABLE: ReadonlyArray<
  readonly [sentence: string, clusters: string[], cluster: string, routed: string | undefined]
> = [
  ["a caller goes to the cluster of its credential", ["default"], DEFAULT_CLUSTER, "default"],
  ["a caller never goes to another one", ["blue", "red"], "red", "red"],
  ["a cluster that is gone is unknown", ["blue"], "red", undefined],
  ["names that every object has are no clusters", ["blue"], "constructor", undefined],
];

for (const [sentence, clusters, cluster, routed] of TABLE) {
  test(sentence, () => {
    const known = new Set(clusters);
    const caller = { name: "CN=x", cluster };
    if (routed !== undefined) assert.equal(route(caller, known), routed);
    else
      assert.throws(
        () => route(caller, known),
        (error) => error instanceof CulvertError && error.code === "unknown_cluster",
      );
  });
}
