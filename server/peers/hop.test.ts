import assert from "node:assert/strict";
import { test } from "node:test";
import { agentOf, pki, until } from "../testing/server.ts";
import { ask, Fleet } from "./testing/fleet.ts";

test("a CONNECT at a server without an agent of its cluster goes to the one that has it, and both logs have one id", async () => {
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1");
  const far = await fleet.start("srv-2");
  await agentOf(far, { agentId: "blue" });
  await fleet.holders("srv-2");
  const caller = await ask(near);
  assert.match(caller.status, /^HTTP\/1\.1 200 /);
  caller.socket.write("over two servers");
  await until(() => caller.text.endsWith("over two servers"));
  caller.socket.end();
  await until(() => near.lines.some(({ msg }) => msg === "connection closed"));
  const mine = near.lines.find(({ msg }) => msg === "connection closed");
  assert.deepEqual(
    [mine?.["outcome"], mine?.["agent"], mine?.["peer"], mine?.["bytesUp"]],
    ["ok", "blue", "srv-2", 16],
  );
  await until(() => far.lines.some(({ msg }) => msg === "connection of a peer closed"));
  const theirs = far.lines.find(({ msg }) => msg === "connection of a peer closed");
  assert.deepEqual(
    [theirs?.["outcome"], theirs?.["agent"], theirs?.["peer"], theirs?.["bytesDown"]],
    ["ok", "blue", "srv-1", 16],
  );
  assert.equal(theirs?.["id"], mine?.["id"]);
  void pki;
});
