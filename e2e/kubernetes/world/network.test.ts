import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { within } from "../../harness/wait.ts";
import { whatIsMissing } from "../prerequisites.ts";
import { Namespace } from "./namespace.ts";
import { createNetwork } from "./network.ts";
import { run } from "./run.ts";

const missing = await whatIsMissing();
if (missing !== undefined && process.env["CI"] === "true") throw new Error(`CI may not skip this: ${missing}`);

/** Linux gives no process this number. */
const KILLED_RUN = "culvert-e2e-4194305-";

const leftBy = (prefix: string) =>
  ["/run/netns", "/etc/netns"]
    .flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : []))
    .filter((name) => name.startsWith(prefix));

test("namespaces, their files and their programs that a killed run left are gone with the next", {
  skip: missing ?? false,
}, async () => {
  await run(["ip", "netns", "add", `${KILLED_RUN}control`], { env: { PATH: process.env["PATH"] ?? "" } });
  await using orphan = new Namespace(`${KILLED_RUN}control`).start("orphan", ["sleep", "1000"]);
  mkdirSync(`/etc/netns/${KILLED_RUN}node`, { recursive: true });
  writeFileSync(`/run/netns/${KILLED_RUN}between`, ""); // killed between the name and the namespace
  await using network = await createNetwork();
  assert.deepEqual(leftBy(KILLED_RUN), []);
  assert.equal(await within(orphan.exited, 5_000, "the orphan's end"), "SIGKILL");
  assert.ok(leftBy(network.controlPlane.name).length > 0);
});

test("a network leaves nothing", { skip: missing ?? false }, async () => {
  const network = await createNetwork();
  await network[Symbol.asyncDispose]();
  assert.deepEqual(leftBy(`culvert-e2e-${process.pid}-`), []);
});
