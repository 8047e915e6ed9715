import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type Profiler, Session } from "node:inspector/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { startWorld } from "../harness/world.ts";

const ROUNDS = 400;
const SMALL = Buffer.alloc(100);
/** Every fifth round, so that streams and sockets are full for a while, too. */
const LARGE = Buffer.alloc(256 * 1024);

/** The files that the page lists. */
function listed(): string[] {
  const page = readFileSync(join(ROOT, "docs/architecture.md"), "utf8");
  const [, section = ""] = page.split("\n## The path of a byte\n");
  const rows = section.split("\n## ")[0]?.match(/^\|.*$/gm) ?? [];
  return rows.flatMap((row) => [...row.matchAll(/`([\w/-]+\.ts)`/g)].map(([, file = ""]) => file)).sort();
}

/** How often the function that ran most did so, for each product file. */
function calls(scripts: readonly Profiler.ScriptCoverage[]): Map<string, number> {
  const most = new Map<string, number>();
  for (const { url, functions } of scripts) {
    const file = /\/((?:server|agent|shared)\/[\w/-]+)\.[jt]s$/.exec(url)?.[1];
    if (file === undefined || /node_modules|\/testing\//.test(url)) continue;
    most.set(`${file}.ts`, Math.max(0, ...functions.map(({ ranges: [range] }) => range?.count ?? 0)));
  }
  return most;
}

test("a byte of an open connection passes the files that docs/architecture.md lists, and no others", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using connection = await world.connect("echo", { via: "tls" });
  const exchange = async (rounds: number): Promise<void> => {
    for (let round = 0; round < rounds; round++) {
      const message = round % 5 === 0 ? LARGE : SMALL;
      await connection.send(message);
      await connection.readBytes(message.length);
    }
  };
  await exchange(20);
  const inspector = new Session();
  inspector.connect();
  await inspector.post("Profiler.enable");
  await inspector.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  await exchange(ROUNDS);
  const { result } = await inspector.post("Profiler.takePreciseCoverage");
  inspector.disconnect();

  const ran = calls(result);
  const files = listed();
  assert.ok(files.length > 0, "the page has the list");
  assert.deepEqual(
    files.filter((file) => !ran.get(file)),
    [],
    "nothing of these files ran",
  );
  // What a timer calls runs less often than there are rounds.
  const often = [...ran].filter(([, count]) => count >= ROUNDS).map(([file]) => file);
  assert.deepEqual(
    often.filter((file) => !files.includes(file)),
    [],
    "these files are not listed",
  );
});
