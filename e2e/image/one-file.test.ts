import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { oneFile } from "../binary/harness/one-file.ts";
import { TempDir } from "../harness/temp.ts";
import { missing } from "../proxies/harness/missing.ts";
import { buildImage } from "./harness/build.ts";
import { BuildContext } from "./harness/build-context.ts";
import { Container } from "./harness/container.ts";

const MANIFEST = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

test("the image of one file starts it without Node.js, as the same user and by Konnectivity's commands", {
  skip: missing("setpriv"),
}, async () => {
  using dir = new TempDir();
  const context = dir.file("context");
  new BuildContext(ROOT).send(context);
  mkdirSync(dirname(join(context, "dist-binary/culvert")), { recursive: true });
  copyFileSync(await oneFile(), join(context, "dist-binary/culvert"));
  const image = await buildImage({
    dockerfile: readFileSync(join(ROOT, "Dockerfile"), "utf8"),
    target: "one-file",
    ...{ context, stages: dir.file("stages"), buildArgs: {}, env: {}, caches: {} },
  });
  assert.equal(image.base, "debian:12-slim");
  assert.equal(image.user, "65532:65532");
  assert.equal(image.labels["org.opencontainers.image.version"], MANIFEST.version);
  for (const [command, expected] of [
    [undefined, /^Usage: culvert \[options\] \[command\]/],
    [["culvert", "version"], new RegExp(`^culvert ${MANIFEST.version}\n`)],
    [["/proxy-server", "--help"], /culvert server/],
    [["/proxy-agent", "--help"], /culvert agent/],
  ] as const) {
    await using container = await Container.start(image, command === undefined ? {} : { command });
    assert.equal(await container.end(), "exit code 0");
    assert.match(container.output, expected);
  }
});
