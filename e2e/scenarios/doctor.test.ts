import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { readStatus } from "../../cli/status-answer.ts";
import { ScriptedProxy } from "../../shared/way-out/testing-proxy.ts";
import { formatProxy } from "../../shared/way-out/way.ts";
import { examined } from "../harness/doctor.ts";
import { startWorld } from "../harness/world.ts";

test("a healthy way is measured in full, under a name of its own, while a caller's stream goes on", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  const caller = await world.connect("echo");
  const { verdict, steps } = await examined(world, { seconds: 1 });
  assert.equal(verdict.culprit, "none", JSON.stringify(steps));
  const of = (name: string) => steps.find(({ step }) => step === name);
  assert.match(of("admission")?.detail ?? "", /^"agent-1-doctor" is welcome at server "world"/);
  assert.match(of("echo")?.detail ?? "", /^20 round trips/);
  for (const name of ["upload", "download"]) assert.match(of(name)?.detail ?? "", /^[1-9]\d* Mbit\/s$/);
  assert.ok(Math.abs(of("clock")?.aheadMs ?? Number.NaN) < 60_000);

  await caller.send("still here");
  assert.equal(String(await caller.readBytes("still here".length)), "still here");
});

test("the doctor's tunnel takes no callers: they are asked to go elsewhere before any comes", async () => {
  await using world = await startWorld({ agents: 0 });
  const examination = examined(world, { seconds: 1 });
  const isDone = examination.then(() => true);
  const admin = `http://127.0.0.1:${world.server.addresses.admin?.port}/status`;
  const measuring: boolean[] = [];
  while (!(await Promise.race([isDone, false]))) {
    const { clusters } = readStatus(await (await fetch(admin)).json());
    for (const { agent, streams, draining } of clusters.flatMap(({ tunnels }) => tunnels)) {
      if (agent === "agent-1-doctor" && streams > 0) measuring.push(draining);
    }
  }
  assert.ok(measuring.length > 0);
  assert.ok(measuring.every((draining) => draining));
  assert.equal((await examination).verdict.culprit, "none");
});

test("a healthy way through a proxy says which one, and who has named it", async () => {
  await using world = await startWorld({ agents: 0 });
  await using proxy = await ScriptedProxy.start({
    onRequest: (_request, socket) => {
      socket.removeAllListeners("data");
      const onward = net.connect(world.server.addresses.agents?.port ?? 0, "127.0.0.1");
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      socket.pipe(onward.on("error", () => {})).pipe(socket);
    },
  });
  const at = formatProxy(proxy.url);
  const { verdict, steps } = await examined(world, { proxy: [at] });
  assert.equal(verdict.culprit, "none", JSON.stringify(steps));
  const shown = steps.flatMap(({ step, detail }) => (["way out", "proxy"].includes(step) ? detail : []));
  assert.deepEqual(shown, [`${at} (--proxy)`, `through ${at} (--proxy)`]);
});
