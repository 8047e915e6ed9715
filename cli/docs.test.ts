import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { agentOptions } from "../agent/context/options.ts";
import { clusterDocument } from "../server/clusters/document.ts";
import { serverOptions } from "../server/options/options.ts";
import type { OptionTable } from "../shared/config/options.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { validate } from "../shared/documents/schema.ts";
import { folderOf } from "../shared/documents/testing/files.ts";
import { type PlainValue, yamlDocuments } from "../shared/documents/yaml.ts";
import { OUTCOMES, type OutcomeCode, outcome } from "../shared/outcomes.ts";
import { ROOT } from "../shared/runtime/testing/project.ts";
import { createPki } from "./pki/pki.ts";

/** The Markdown files of a folder. */
function pagesOf(folder: string): string[] {
  return readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name));
}

const PAGES = [
  ...["", "docs", "docs/platforms"].flatMap(pagesOf),
  "docs/decisions/README.md",
  "examples/systemd/README.md",
  "examples/kind/README.md",
];
const DECISIONS = pagesOf("docs/decisions").filter((name) => !name.endsWith("README.md"));

function page(name: string): string {
  return readFileSync(join(ROOT, name), "utf8");
}

test("docs/errors.md has a row with the right status and a paragraph for every outcome, and for no other", () => {
  const text = page("docs/errors.md");
  const rows = [...text.matchAll(/^\| \[`(\w+)`\]\(#\1\) \| (\w+)/gm)].map(([, code, status]) => [code, status]);
  const codes = Object.keys(OUTCOMES) as OutcomeCode[];
  assert.deepEqual(rows.toSorted(), codes.map((code) => [code, String(outcome(code).http ?? "none")]).toSorted());
  for (const code of codes) {
    const paragraph = text.split(`\n### ${code}\n`)[1]?.split("\n#")[0] ?? "";
    assert.ok(paragraph.trim().length > 80, `docs/errors.md says too little about ${code}`);
  }
});

/** The keys that the schema of a cluster's document names when it refuses an unknown one. */
function knownKeys(path: string): string[] {
  const steps = path === "" ? [] : path.split(".");
  const value = steps.reduceRight<object>((within, key) => ({ [key]: within }), { xxxxxxxx: "x" });
  const parsed = validate(clusterDocument, { name: "blue", ...value } as PlainValue);
  const faults = parsed.faults?.join("\n") ?? "";
  return /has no key "xxxxxxxx"; known are ([\w, ]+)\./.exec(faults)?.[1]?.split(", ") ?? assert.fail(faults);
}

/** The pages about the documents of clusters. */
const CLUSTER_PAGES = ["docs/clusters.md", "docs/cluster-trust.md", "docs/agent-targets.md"].map(page);

test("the pages about clusters have a row for every key of a cluster's document, and for no other", () => {
  const rows = [
    ...CLUSTER_PAGES.slice(0, 2)
      .join("\n")
      .matchAll(/^\| ((?:`[\w.]+` ?)+)\|/gm),
  ];
  const told = rows.flatMap(([, keys = ""]) => [...keys.matchAll(/`([\w.]+)`/g)].map(([, key = ""]) => key));
  const under = (path: string, as = path) => knownKeys(path).map((key) => `${as}${as && "."}${key}`);
  const parts = new Set(["agents", "callers", "limits", "token.tokenReview", "token.jwt"]);
  const keys = [
    ...["", "agents", "callers", "limits"].flatMap((path) => under(path)),
    ...under("agents.token", "token"),
    ...["token.tokenReview", "token.jwt"].flatMap((path) => under(`agents.${path}`, path)),
  ];
  assert.deepEqual(told.toSorted(), keys.filter((key) => !parts.has(key)).toSorted());
});

test("the documents that the pages about clusters show are taken as they stand", () => {
  const shown = [...CLUSTER_PAGES.join("\n").matchAll(/^```yaml\n([\s\S]*?)^```$/gm)];
  assert.equal(shown.length, 4);
  for (const [, text = ""] of shown) {
    for (const { value, fault } of yamlDocuments(text)) {
      assert.equal(fault, undefined);
      const parsed = validate(clusterDocument, value);
      assert.deepEqual(parsed.faults, undefined);
    }
  }
});

test("files and folders of the sources that the pages name exist", () => {
  const path =
    /`((?:shared|server|agent|router|sidecars|cli|e2e|scripts|fuzz|helm|docs)\/(?![^`]*NAME)[\w./-]*[\w/])`/g;
  const named = [...PAGES, ...DECISIONS].flatMap((name) => [...page(name).matchAll(path)].map(([, file = ""]) => file));
  const isThere = (file: string) => ["", ".ts", ".test.ts"].some((end) => existsSync(join(ROOT, `${file}${end}`)));
  assert.ok(named.length > 50);
  assert.deepEqual(new Set(named.filter((file) => !isThere(file))), new Set());
});

test("a decision begins with what was decided, and says why and what it costs", () => {
  for (const name of DECISIONS) {
    const order = ["Decision", "Why", "Price"].map((word) => page(name).search(new RegExp(`^\\*{1,2}${word}\\.`, "m")));
    assert.ok(!order.includes(-1), `${name} lacks one of Decision, Why, Price`);
    assert.deepEqual(
      order.toSorted((a, b) => a - b),
      order,
      name,
    );
  }
});

test("the glossary has at most 25 words", () => {
  assert.ok([...page("docs/glossary.md").matchAll(/^\| (?!word|---)/gm)].length <= 25);
});

test("links between the pages lead to files and headings that exist", () => {
  for (const name of PAGES) {
    for (const [, link = ""] of page(name).matchAll(/(?:\]\(|src(?:set)?=")([^)"]+)[)"]/g)) {
      if (/^https?:/.test(link)) continue;
      const [file = "", heading] = link.split("#");
      const path = file === "" ? join(ROOT, name) : join(ROOT, dirname(name), file);
      assert.ok(existsSync(path), `${name}: ${link}`);
      if (heading === undefined) continue;
      const headings = [...readFileSync(path, "utf8").matchAll(/^#+ (.*)$/gm)].map(([, text = ""]) => text);
      // As GitHub makes an anchor of a heading.
      const anchors = headings.map((text) =>
        text
          .toLowerCase()
          .replace(/[^\w -]/g, "")
          .replaceAll(" ", "-"),
      );
      assert.ok(anchors.includes(heading), `${name}: ${link}`);
    }
  }
});

/** A command of a tool that has hundreds of flags: to the end of the line, of its continuation and of its quotes. */
const OF_ANOTHER_TOOL =
  /(?<=^[ |]*|`|\$\()(?:kubectl|helm|docker|openssl|curl|systemctl|k0s|cosign|sha256sum|git|npm (?:run|version))\b(?:[^'"`\\\n]|\\[\s\S]|'[^']*'|"(?:[^"\\]|\\.)*")*/gm;

test("every flag that the pages name is an option of culvert, or of a tool that is shown with it", () => {
  const others =
    /^--(proxy-cacert|proxy-cert|proxy-key|proxytunnel|rm|egress-selector-config-file|dir|server-san|cluster-san|namespace|name|build-arg|init|mount|chmod|server-names|agent-names|peers|days|help|print-config|kubernetes|proxy|retry|retry-connrefused|retry-delay|admin-address|json|watch|cluster|from-server|quiet|prefix|seconds|import|test|target|minutes|create-namespace|set|wait|kube-context|context|server-side|type|tail|write|page|rounds|only|advertise-address|secure-port|heap-growing-percent|no-allocation-site-pretenuring|expose-gc|inspect|inspect-brk|runtime|bytecode|splitting|minify)$/;
  const options = page("docs/options.md");
  for (const name of PAGES) {
    for (const [flag] of page(name)
      .replace(OF_ANOTHER_TOOL, "")
      .matchAll(/(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]/g)) {
      assert.ok(others.test(flag) || options.includes(`\`${flag}\``) || flag === "--mode", `${name}: ${flag}`);
    }
  }
});

test("the lines that start a server and an agent, in docs/by-hand.md, in docs/clusters.md and in --help, are taken as they stand", async (t) => {
  const dir = folderOf(t);
  await createPki({ dir });
  writeFileSync(join(dir, "clusters.yaml"), "name: blue\n");
  for (const table of [serverOptions, agentOptions] as unknown as OptionTable[]) {
    const command = ` ${table.command} `;
    const start = new RegExp(`^node dist/cli/main\\.js${command}(?:.*\\\\\n)*.*$`, "gm");
    const all = ["docs/by-hand.md", "docs/clusters.md"].flatMap((name) => page(name).match(start) ?? []);
    assert.ok(all.length > 1);
    for (const lines of [...all, table.example.join("\n")]) {
      const argv =
        lines
          .split(command)[1]
          ?.split(" > ", 1)[0]
          ?.split(/[\s\\]+/) ?? [];
      assert.ok(argv.length > 0);
      // A file of the set, wherever the line says it lies.
      const here = argv.map((word) => (/\.(crt|key|yaml)$/.test(word) ? join(dir, basename(word)) : word));
      assert.deepEqual((await readOptions(table, { argv: here, env: {} })).problems, [], lines);
    }
  }
});

test("the README has at most 9,000 characters", () => {
  assert.ok(page("README.md").length <= 9_000);
});

test("pictures in colours for light and dark pages differ in nothing but their colours", () => {
  const names = readdirSync(join(ROOT, "docs/images")).filter((name) => name.endsWith("-light.svg"));
  const shape = (name: string) => page(`docs/images/${name}`).replaceAll(/#[0-9a-f]{6}/g, "#");
  assert.ok(names.length > 0);
  for (const name of names) assert.equal(shape(name), shape(name.replace("-light", "-dark")), name);
});

test("each figure of the README stands in docs/performance.md", () => {
  const figures = page("docs/performance.md").split("### Node.js 24")[1]?.split("\n### ")[0] ?? "";
  const rows = [...page("README.md").matchAll(/^\| ([^|]+) \| ([\d.]+) (\S+) \| ([\d.]+) \3 \|/gm)];
  assert.ok(rows.length > 5);
  for (const [, name, ours, unit, theirs] of rows) {
    assert.ok(figures.includes(`| ${name} | ${unit} | ${ours} | ${theirs} |`), `${name}: ${ours}, ${theirs}`);
  }
});

test("the scripts that the pages name are in package.json", () => {
  const { scripts } = JSON.parse(page("package.json")) as { scripts: Record<string, string> };
  for (const name of PAGES) {
    for (const [, script = ""] of page(name).matchAll(/npm run ([a-z0-9:]+)/g)) assert.ok(scripts[script], script);
  }
});

test("every package that is installed takes the oldest Node.js that package.json promises", () => {
  const { packages } = JSON.parse(page("package-lock.json")) as {
    packages: Readonly<Record<string, { readonly engines?: { readonly node?: string } }>>;
  };
  // None has an upper bound, but for alternatives of one major version.
  const beginOf = (range = "*"): number => {
    const [, major = "0", minor = "0"] = /(?:>=\s*)?(\d+)?(?:\.(\d+))?[\w.]*$/.exec(range) ?? [];
    return Number(major) * 1_000 + Number(minor);
  };
  const promised = beginOf(packages[""]?.engines?.node);
  const takes = (alternative: string): boolean => {
    const begin = beginOf(alternative);
    const isOpen = begin === 0 || alternative.includes(">");
    return begin <= promised && (isOpen || Math.floor(begin / 1_000) === Math.floor(promised / 1_000));
  };
  const later = Object.entries(packages).filter(
    ([, { engines: { node = "*" } = {} }]) => !node.split("||").some((alternative) => takes(alternative.trim())),
  );
  assert.equal(promised, 20_019);
  assert.deepEqual(later, []);
});
