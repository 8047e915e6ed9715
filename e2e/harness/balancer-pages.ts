import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

const PAGE = readFileSync(new URL("../../docs/load-balancers.md", import.meta.url), "utf8");

/** Why the real binary cannot be used here; on CI that is a failure. */
export function missing(binary: "haproxy" | "nginx"): string | false {
  if (spawnSync(binary, ["-v"]).status === 0) return false;
  const reason = `there is no ${binary}`;
  if (process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  return reason;
}

/** The configurations of the page in one language, as they stand there. */
export function configurations(language: "haproxy" | "nginx"): string[] {
  return [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(([, text = ""]) => text);
}

/** With the addresses of this test in place of the page's; each has to be there. */
export function located(text: string, addresses: Readonly<Record<string, string>>): string {
  return Object.entries(addresses).reduce((before, [from, to]) => {
    assert.ok(before.includes(from), `the page says nothing of ${from}`);
    return before.replaceAll(from, to);
  }, text);
}
