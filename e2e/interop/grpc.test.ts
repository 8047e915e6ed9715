import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { agentSays, examined } from "../harness/doctor.ts";
import { startWorld } from "../harness/world.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

const skip = goMissing;
const world = await startWorld();
after(() => world[Symbol.asyncDispose]());

/** Flags of the peer: who it is, and whom it believes. */
function credentials(ca: string, own: string): string[] {
  const file = (name: string): string => join(world.dir.path, name);
  return ["-ca", file(`${ca}.crt`), "-cert", file(`${own}.crt`), "-key", file(`${own}.key`)];
}

test("agent and doctor that dial konnectivity-server name it", { skip }, async () => {
  const flags = ["-mode", "server", ...credentials("cluster-ca", "cluster")];
  const child = spawn(await goPeerBinary("go-grpc"), flags, { stdio: ["pipe", "pipe", "inherit"] });
  try {
    const [port] = (await once(createInterface(child.stdout), "line")) as [string];
    const server = [`wss://127.0.0.1:${port}`];
    assert.match(await agentSays(world, { server }), /as konnectivity-server \(gRPC\) does/);
    const { verdict } = await examined(world, { server });
    assert.equal(verdict.culprit, "grpc_server");
    assert.match(verdict.sentence, /looks like konnectivity-server, or another server of gRPC, and not like culvert/);
  } finally {
    child.stdin.end();
  }
});
