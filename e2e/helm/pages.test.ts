import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { findHelm, helmMissing } from "./harness/helm-program.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PAGES = [
  ...["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"],
  ...["docs", "helm", "examples"].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
      .filter((path) => path.endsWith(".md"))
      .map((path) => join(folder, path)),
  ),
];
const INSTALLING = PAGES.filter((page) => page === "README.md" || page.startsWith("docs/platforms/"));
/** Variables that the pages let a reader set. */
const ENVIRONMENT = { IMAGE: "registry.example.com/culvert", NS: "blue", ADDRESS: "203.0.113.10" };
/** Helm says that it has the Kubernetes of its own libraries, which may be older than the charts need. */
const KUBERNETES = "1.34.0";

const read = (page: string) => readFileSync(join(ROOT, page), "utf8");
const withoutCode = (text: string) => text.replaceAll(/^ *```.*?^ *```$/gms, "");

test("each link from one page to another, and to a chapter of it, leads somewhere", () => {
  const broken = PAGES.flatMap((page) =>
    [...withoutCode(read(page)).matchAll(/\]\(\s*([^)\s]+)\s*\)/g)]
      .map(([, link = ""]) => link)
      .filter((link) => !/^[a-z]+:/.test(link) && !resolves(page, link))
      .map((link) => `${page}: ${link}`),
  );
  assert.deepEqual(broken, []);
});

function resolves(page: string, link: string): boolean {
  const [path = "", chapter] = link.split("#");
  const target = path === "" ? page : normalize(join(dirname(page), decodeURI(path)));
  if (!existsSync(join(ROOT, target))) return false;
  return chapter === undefined || !target.endsWith(".md") || chaptersOf(target).includes(chapter);
}

/** As GitHub makes them of headings. */
function chaptersOf(page: string): string[] {
  const headings = [...withoutCode(read(page)).matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) => heading);
  return headings.map((heading) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\- _]/gu, "")
      .replaceAll(" ", "-"),
  );
}

for (const page of INSTALLING) {
  const blocks = [...read(page).matchAll(/^( *)```sh\n(.*?)^ *```$/gms)].map(([, indent = "", block = ""]) =>
    block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
  );

  test(`the commands of ${page} are a shell's`, () => {
    const said = blocks.map((input) => spawnSync("bash", ["-n"], { input, encoding: "utf8" }).stderr);
    assert.deepEqual(said.filter(Boolean), []);
  });

  const commands = blocks.flatMap(
    (block) => block.replaceAll("\\\n", " ").match(/^helm .*\b(install|template) .*$/gm) ?? [],
  );
  if (commands.length === 0) continue;
  test(`the charts are rendered by the helm commands of ${page}`, { skip: helmMissing() }, () => {
    const failed = commands.map((command) => {
      const rendering = command
        .replace(/ (install|template) /, " template ")
        .replaceAll(/ --(create-namespace|wait)\b/g, "");
      const script = `${rendering} --kube-version ${KUBERNETES}`;
      const { stderr } = spawnSync("bash", ["-c", script], {
        cwd: ROOT,
        encoding: "utf8",
        env: { ...process.env, PATH: `${dirname(findHelm() ?? "")}:${process.env["PATH"]}`, ...ENVIRONMENT },
      });
      return stderr && `${command}\n${stderr}`;
    });
    assert.deepEqual(failed.filter(Boolean), []);
  });
}
