import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { findHelm, helmMissing } from "./harness/helm-program.ts";

const PLATFORMS = readdirSync(join(ROOT, "docs/platforms")).map((page) => join("docs/platforms", page));
const PAGES = ["README.md", "docs/install.md", "examples/kind/README.md", ...PLATFORMS];
/** Variables that the pages let a reader set. */
const ENVIRONMENT = {
  IMAGE: "registry.example.com/culvert",
  NS: "blue",
  ADDRESS: "203.0.113.10",
  CLAIMS: "ipv4=172.30.5.1&",
};
/** Helm says that it has the Kubernetes of its own libraries, which may be older than the charts need. */
const KUBERNETES = "1.34.0";

const read = (page: string) => readFileSync(join(ROOT, page), "utf8");

for (const page of PAGES) {
  const blocks = [...read(page).matchAll(/^( *)```sh\n(.*?)^ *```$/gms)].map(([, indent = "", block = ""]) =>
    block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  );

  test(`the commands of ${page} are a shell's`, () => {
    const said = blocks.map((input) => spawnSync("bash", ["-n"], { input, encoding: "utf8" }).stderr);
    assert.deepEqual(said.filter(Boolean), []);
  });

  const commands = blocks.flatMap(
    (block) => block.replaceAll("\\\n", " ").match(/^helm .*\b(install|template|upgrade) .*$/gm) ?? [],
  );
  if (commands.length === 0) continue;
  test(`the charts are rendered by the helm commands of ${page}`, { skip: helmMissing() }, () => {
    const failed = commands.map((command) => {
      const rendering = command
        .replace(/ (install|template|upgrade) /, " template ")
        .replaceAll(/ --(create-namespace|wait)\b/g, "");
      const script = `${rendering} --kube-version ${KUBERNETES}`;
      const { stderr } = spawnSync("bash", ["-c", script], {
        cwd: ROOT,
        encoding: "utf8",
        env: { ...process.env, ...ENVIRONMENT, PATH: `${dirname(findHelm() ?? "")}:${process.env["PATH"]}` },
      });
      return stderr && `${command}\n${stderr}`;
    });
    assert.deepEqual(failed.filter(Boolean), []);
  });

  test(`each helm command of ${page} names the image, without which pods get one that is not published`, () => {
    assert.deepEqual(
      commands.filter((command) => !command.includes("--set image.repository=$IMAGE") && !/ template /.test(command)),
      [],
    );
  });
}

const INSTALLING = PLATFORMS.filter((path) => !path.endsWith("README.md") && /^ *helm .*\binstall /m.test(read(path)));
for (const page of INSTALLING) {
  test(`${page} has a whole command for the upgrade of each release that it installs`, () => {
    const text = read(page).replaceAll("\\\n", " ");
    const releases = (verb: string) =>
      [...text.matchAll(new RegExp(`^ *helm (.*)\\b${verb} (\\S+ helm/\\S+) +--namespace (\\S+)`, "gm"))].map(
        ([, context = "", release, namespace]) => `${context}${release} ${namespace}`,
      );
    const installed = new Set(releases("install"));
    assert.ok(installed.size > 0);
    assert.deepEqual(new Set(releases("upgrade")), installed);
  });
}
