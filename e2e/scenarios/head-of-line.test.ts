import assert from "node:assert/strict";
import { test } from "node:test";
import { type Connection, established } from "../harness/caller.ts";
import { Payload, PayloadCheck } from "../harness/payload.ts";
import { sendPayload } from "../harness/targets/plain.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { standing, waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

const ECHOES = 200;
/** More than all buffers on the way hold, the kernel's included. */
const UPLOAD = 40_000_000;
const LATER = 4_000_000;

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, a reader that has stopped in a download holds nobody else up`, async () => {
    await using world = await startWorld({ targets: ["source", "echo"] });
    await using stuck = await world.connect("source", { via });
    stuck.socket.pause();
    await waitFor(() => held(world) > 0, { what: "bytes to wait for the reader" });
    const before = await standing(() => held(world));
    await echoes(world, via);
    assert.equal(held(world), before, "the stopped reader was given something to hold");
    const late = new PayloadCheck();
    late.take(await stuck.readBytes(LATER, 20_000));
    late.expect(LATER, "what the reader takes when it goes on");
  });

  test(`over ${via}, a target that has stopped in an upload holds nobody else up`, async () => {
    const late = new PayloadCheck();
    await using dead = await tcpTarget((socket) => socket.on("data", (chunk: Buffer) => late.take(chunk)).pause());
    await using world = await startWorld({ targets: ["echo"] });
    await using stuck = await world.connect(dead.address, { via });
    sendPayload(stuck.socket, new Payload(), UPLOAD);
    const left = () => stuck.socket.bytesWritten - stuck.socket.writableLength;
    await waitFor(left);
    const before = await standing(left);
    assert.ok(stuck.socket.writableLength > 0, "the caller has more to send than there is room for");
    await echoes(world, via);
    assert.equal(left(), before, "the stopped target took something");
    for (const socket of dead.sockets()) socket.resume();
    await waitFor(() => late.bytes === UPLOAD, { deadlineMs: 20_000, what: "the rest, when the target goes on" });
    late.expect(UPLOAD, "what the target takes when it goes on");
  });
}

/** Bytes that wait in the server for readers. */
function held(world: World<never>): number {
  let bytes = 0;
  for (const tunnel of world.server.tunnels.tunnels()) bytes += tunnel.bufferedBytes;
  return bytes;
}

/** Other streams work: an old one byte by byte, and new ones. */
async function echoes(world: World<"echo"> | World<"source" | "echo">, via: "uds" | "tls"): Promise<void> {
  await using open: Connection = await world.connect("echo", { via });
  for (let turn = 0; turn < ECHOES; turn++) {
    await open.send("x");
    assert.equal((await open.readBytes(1)).toString(), "x");
    if (turn % 20 !== 0) continue;
    await using _fresh = await established(world.connect("echo", { via }));
  }
}
