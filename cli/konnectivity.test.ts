import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { agentOptions } from "../agent/options.ts";
import { serverOptions } from "../server/options.ts";
import { readOptions } from "../shared/process/read-options.ts";
import { ARGUMENT_LISTS, type ArgumentList } from "./testing-konnectivity.ts";

const dir = mkdtempSync(join(tmpdir(), "culvert-konnectivity-"));
after(() => rmSync(dir, { recursive: true, force: true }));
const file = join(dir, "some.pem");
writeFileSync(file, "");

function readList({ command }: ArgumentList, argv: readonly string[]) {
  return command === "server"
    ? readOptions(serverOptions, { argv, env: {} })
    : readOptions(agentOptions, { argv, env: {} });
}

/** What an operator changes of a list that does not start as it is, and the sentence that says so. */
const CHANGES: Readonly<Record<string, readonly [without: RegExp, sentence: RegExp]>> = {
  "HyperShift, agent of the control plane": [
    /^--agent-identifiers|^ipv4=/,
    /^--agent-identifiers: agents are not chosen/,
  ],
  "KKP, server": [/^--mode=grpc$/, /^--mode: .*`proxyProtocol: HTTPConnect`/],
  "Kubernetes documentation, static pod of the server": [/^--mode=grpc$/, /^--mode: .*`proxyProtocol: HTTPConnect`/],
  "k0s, server": [/^--mode=grpc$/, /^--mode: .*`proxyProtocol: HTTPConnect`/],
  "k0s, agent": [/^--agent-identifiers/, /^--agent-identifiers: agents are not chosen/],
  "OCM, server": [/^--proxy-strategies/, /^--proxy-strategies: destHost alone .*use --clusters/],
};

for (const list of ARGUMENT_LISTS) {
  const change = CHANGES[list.installer];
  const given = list.arguments(file);
  if (change === undefined) {
    test(`the arguments of ${list.installer} start culvert unchanged, with one line of warning at most`, async () => {
      const { problems, warnings } = await readList(list, given);
      assert.deepEqual(problems, []);
      assert.ok(warnings.length <= 1, warnings.join("\n"));
    });
    continue;
  }
  const [without, sentence] = change;
  test(`of the arguments of ${list.installer} one is refused with what to do, and culvert starts without it`, async () => {
    const refused = await readList(list, given);
    assert.equal(refused.problems.length, 1, refused.problems.join("\n"));
    assert.match(refused.problems[0] ?? "", sentence);
    const { problems } = await readList(
      list,
      given.filter((argument) => !without.test(argument)),
    );
    assert.deepEqual(problems, []);
  });
}

test("the line of warning gives each reason once, behind the flags that it is for", async () => {
  const [server] = ARGUMENT_LISTS;
  assert.ok(server);
  const { warnings } = await readList(server, [...server.arguments(file), "--enable-lease-controller"]);
  assert.deepEqual(warnings, [
    "Accepted without effect: --logtostderr, --log-file-max-size (klog's: use --log-level and --log-format); " +
      "--proxy-strategies (every agent of a cluster serves all its targets); " +
      "--server-count (agents are given every server by --server, and keep a tunnel to each URL); " +
      "--enable-lease-controller (no leases are used: agents are given every server by --server).",
  ]);
});
