import assert from "node:assert/strict";
import { test } from "node:test";
import { pino } from "pino";
import { until } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { LocalAddress } from "./local-address.ts";

const SILENT = pino({ level: "silent" });

/** A node whose addresses `ip` changes. */
function nodeOf() {
  const commands: string[] = [];
  const addresses = new Set<string>();
  const run = async (...args: readonly string[]): Promise<void> => {
    commands.push(args.join(" "));
    const address = args[2]?.split("/")[0] ?? "";
    if (args[1] === "replace") addresses.add(address);
    if (args[1] === "delete") addresses.delete(address);
  };
  return { commands, addresses, options: { run, checkMs: 5, addresses: () => [...addresses] } };
}

test("the address is added with scope host, comes back when it is removed, and is removed at the end", async () => {
  const node = nodeOf();
  const local = new LocalAddress("100.64.30.10", "lo", SILENT, node.options);
  await local.add();
  const added = "address replace 100.64.30.10/32 dev lo scope host";
  assert.deepEqual(node.commands, [added]);
  node.addresses.clear();
  await until(() => node.addresses.has("100.64.30.10"));
  assert.deepEqual(node.commands, [added, added]);
  await local.remove();
  await local.remove();
  assert.deepEqual(node.commands.slice(2), ["address delete 100.64.30.10/32 dev lo"]);
});

test("a dummy interface is the agent's own", async () => {
  const node = nodeOf();
  const local = new LocalAddress("fd00::1", "dummy", SILENT, node.options);
  await local.add();
  await local.remove();
  assert.deepEqual(node.commands, [
    "link add culvert0 type dummy",
    "link set culvert0 up",
    "address replace fd00::1/128 dev culvert0 nodad",
    "link delete culvert0",
  ]);
});

test("an agent that may not add addresses says what it needs, and the way without", async () => {
  for (const [fault, words] of [
    [{ code: 2, stderr: "RTNETLINK answers: Operation not permitted\n" }, /lo: RTNETLINK answers: Operation not perm/],
    [{ code: "ENOENT", stderr: "" }, /there is no program ip/],
  ] as const) {
    const run = () => Promise.reject(Object.assign(new Error("Command failed"), fault));
    const local = new LocalAddress("100.64.30.10", "lo", SILENT, { run });
    await assert.rejects(local.add(), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, words);
      assert.match(error.message, /NET_ADMIN.*--interface none/);
      return true;
    });
    await local.remove();
  }
});
