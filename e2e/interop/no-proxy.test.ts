import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { test } from "node:test";
import { NO_PROXY_ROWS } from "../../shared/dial/testing/no-proxy-rows.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { goMissing } from "./go-peer.ts";

/** `goMissing` speaks of yamux; on CI it throws. */
const skip = goMissing === undefined ? false : "Go is not installed, so NO_PROXY was not compared with it";

test("Go takes and avoids the proxy where our table says so", { skip }, async () => {
  const answers = await askGo(
    NO_PROXY_ROWS.map(([noProxy, host, port]) => ({ NoProxy: noProxy, Host: host, Port: String(port) })),
  );
  assert.equal(answers.length, NO_PROXY_ROWS.length);
  const different = NO_PROXY_ROWS.filter(([, , , proxied], index) => proxied !== answers[index]);
  assert.deepEqual(different, []);
});

async function askGo(questions: readonly object[]): Promise<readonly boolean[]> {
  const child = spawn("go", ["run", "."], {
    cwd: join(ROOT, "e2e/interop/go-no-proxy"),
    stdio: ["pipe", "pipe", "inherit"],
  });
  child.stdin.end(JSON.stringify(questions));
  return (await json(child.stdout)) as boolean[];
}
