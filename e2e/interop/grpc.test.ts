import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { agentSays, examined } from "../harness/doctor.ts";
import { captureLog } from "../harness/log-lines.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

/** What konnectivity-agent logs as well when it is answered in HTTP/1.1: it is grpc-go's sentence. */
const GO_SAYS = /Unavailable.*the frame header looked like an HTTP\/1\.1 header/;

const skip = goMissing;
const { log, lines } = captureLog();
const world = await startWorld({ log, server: { konnectivityAgents: false } });
after(() => world[Symbol.asyncDispose]());

/** Flags of the peer: who it is, and whom it believes. */
function credentials(ca: string, own: string): string[] {
  const file = (name: string): string => join(world.dir.path, name);
  return ["-ca", file(`${ca}.crt`), "-cert", file(`${own}.crt`), "-key", file(`${own}.key`)];
}

/** What a client of gRPC prints of its attempt to connect. */
async function grpcClient(target: string, ...flags: string[]): Promise<string> {
  const binary = await goPeerBinary("go-grpc");
  return (await promisify(execFile)(binary, ["-mode", "client", "-target", target, ...flags])).stdout;
}

test("a konnectivity-agent that is not to dial culvert is named in the log, and receives HTTP/1.1", {
  skip,
}, async () => {
  const target = `127.0.0.1:${world.server.addresses.agents?.port}`;
  assert.match(await grpcClient(target, ...credentials("cluster-ca", "agent")), GO_SAYS);
  const line = await waitFor(() => lines.find(({ msg }) => msg === "agent refused"));
  assert.equal(line["code"], 505);
  assert.match(String(line["reason"]), /speaks gRPC \(HTTP\/2\), as konnectivity-agent does.*--konnectivity-agents/);
});

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
