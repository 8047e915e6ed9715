import assert from "node:assert/strict";
import { test } from "node:test";
import { helpText } from "../shared/config/flags.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { routerOptions } from "./options.ts";

const read = (...argv: string[]) => readOptions(routerOptions, { argv, env: {} });

test("only --routes is required, and the error about its absence has the cure", async () => {
  const { problems, values } = await read("--routes=/etc/culvert/routes");
  assert.deepEqual(problems, []);
  assert.deepEqual([values.port, values.healthPort, values.adminBindAddress], [8443, 8098, "127.0.0.1"]);
  assert.deepEqual((await read()).problems, ["Where to? Give --routes, a file or a directory with routes."]);
});

test("two listeners on one port, or none for clients, fail before anything is opened", async () => {
  const { problems } = await read("--routes=r", "--port=0", "--health-port=8097", "--health-bind-address=127.0.0.1");
  assert.deepEqual(problems, [
    "--port must not be 0: no client could connect. Give a port from 1 to 65535.",
    "--health-port and --admin-port are both 8097.",
  ]);
});

test("no flag of Konnectivity is promised where there is none", () => {
  assert.doesNotMatch(helpText(routerOptions), /Konnectivity/);
});
