import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { agentOptions } from "../agent/context/options.ts";
import { routerOptions } from "../router/options.ts";
import { serverOptions } from "../server/options/options.ts";
import { flagName, type OptionTable } from "../shared/config/options.ts";
import { ROOT } from "../shared/runtime/testing/project.ts";
import { httpProxyOptions, socks5ProxyOptions } from "../sidecars/options.ts";

const TABLES = [serverOptions, agentOptions, routerOptions, socks5ProxyOptions, httpProxyOptions] as OptionTable[];
const PAGES = [
  ...["README.md", "SECURITY.md", "CONTRIBUTING.md", "helm/culvert-server/README.md", "helm/culvert-agent/README.md"],
  ...["docs", "docs/platforms"].flatMap((folder) => readdirSync(join(ROOT, folder)).map((name) => `${folder}/${name}`)),
].filter((name) => name.endsWith(".md") && name !== "docs/options.md");

const VALUE = "(\\d[\\d,.]*(?: ?(?:ms|s|min|h|KiB|MiB|GiB))?)";
/** `--flag` (20 s), and `--flag` of both ends (20 s by default). */
const BEHIND = new RegExp(
  `\`--([a-z0-9-]+)\`(?:\\*\\*)?[^\`.()|]{0,40}\\(${VALUE}(?:\\)|, [a-z]| by default| at an agent)`,
  "g",
);
/** 20 s (`--flag`). */
const BEFORE = new RegExp(`\\b${VALUE} \\(\`--([a-z0-9-]+)\`[,;)]`, "g");

/** The text of a value as on the command line: `15 min` is `15m`, `16,384` is `16384`. */
function asFlag(value: string): string {
  return value.replaceAll(",", "").replace(" ", "").replace("min", "m");
}

/** The flags in this text whose number beside it is the default of no command. */
function wrongDefaults(text: string): string[] {
  const told = [
    ...[...text.matchAll(BEHIND)].map(([words, flag, value]) => ({ words, flag, value })),
    ...[...text.matchAll(BEFORE)].map(([words, value, flag]) => ({ words, flag, value })),
  ];
  return told.filter(({ flag = "", value = "" }) => !isDefault(flag, asFlag(value))).map(({ words }) => words);
}

/** True also for a flag that no table has: those are other tools', or of commands without a table. */
function isDefault(flag: string, value: string): boolean {
  const rows = TABLES.flatMap(({ options }) =>
    Object.entries(options).flatMap(([key, row]) => (flagName(key, row) === flag ? [row] : [])),
  );
  return rows.length === 0 || rows.some((row) => equals(() => row.read([value]), row.default));
}

function equals(read: () => unknown, value: unknown): boolean {
  try {
    return read() === value;
  } catch {
    return false; // a number in another unit than the option's
  }
}

test("a number beside a flag is found in both orders, and compared with the default as the command reads it", () => {
  assert.deepEqual(wrongDefaults("the pings (`--keepalive`) and `--link-grace` (30 s) and 20 s (`--keepalive`)"), []);
  assert.deepEqual(
    wrongDefaults("`--stall-timeout` of server or agent (15 min), `--max-streams` (16,384 at an agent"),
    [],
  );
  assert.deepEqual(wrongDefaults("wait for `--link-grace` (31 s) in"), ["`--link-grace` (31 s)"]);
  assert.deepEqual(wrongDefaults("every 21 s (`--keepalive`)"), ["21 s (`--keepalive`)"]);
});

test("numbers beside flags in the pages are the defaults of the option tables", () => {
  const texts = PAGES.map((name) => ({ name, text: readFileSync(join(ROOT, name), "utf8").replaceAll(/\s+/g, " ") }));
  const found = texts.flatMap(({ text }) => [...text.matchAll(BEHIND), ...text.matchAll(BEFORE)]);
  assert.ok(found.length >= 10, `${found.length}`);
  assert.deepEqual(
    texts.flatMap(({ name, text }) => wrongDefaults(text).map((words) => `${name}: ${words}`)),
    [],
  );
});
