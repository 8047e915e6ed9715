import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { within } from "../harness/wait.ts";
import { Namespace } from "../kubernetes/world/namespace.ts";
import { run } from "../kubernetes/world/run.ts";
import { missing } from "./harness/missing.ts";
import { CorporateNetwork } from "./harness/network.ts";

const skip = missing();
/** Linux gives no process this id. */
const KILLED_RUN = "culvert-proxies-4194305-1-";

const leftBy = (prefix: string) =>
  ["/run/netns", "/etc/netns"]
    .flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : []))
    .filter((name) => name.startsWith(prefix));

test("namespaces, files and programs are removed with the run, and those of a killed run by the next one", {
  skip,
}, async () => {
  await run(["ip", "netns", "add", `${KILLED_RUN}inside`], { env: { PATH: process.env["PATH"] ?? "" } });
  await using orphan = new Namespace(`${KILLED_RUN}inside`).start("orphan", [
    "sh",
    "-c",
    "echo inside; exec sleep 1000",
  ]);
  await orphan.waitForLog("inside");
  mkdirSync(`/etc/netns/${KILLED_RUN}outside`, { recursive: true });
  const network = await CorporateNetwork.create();
  assert.deepEqual(leftBy(KILLED_RUN), []);
  assert.equal(await within(orphan.exited, 5_000, "the orphan's end"), "SIGKILL");
  assert.ok(leftBy(network.inside.name).length > 0);
  await network[Symbol.asyncDispose]();
  assert.deepEqual(leftBy(`culvert-proxies-${process.pid}-`), []);
});
