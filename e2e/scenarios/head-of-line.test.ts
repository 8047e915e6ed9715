import assert from "node:assert/strict";
import { test } from "node:test";
import type { Connection } from "../harness/caller.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

const ECHOES = 200;

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, a reader that has stopped in a download holds nobody else up`, async () => {
    await using world = await startWorld({ targets: ["source", "echo"] });
    await using stuck = await world.connect("source", { via });
    stuck.socket.pause();
    await waitFor(() => held(world) > 0, { what: "bytes to wait for the reader" });
    const before = await standing(world);
    await echoes(world, via);
    assert.equal(held(world), before, "the stopped reader was given something to hold");
    assert.equal(stuck.socket.closed, false);
  });

  test(`over ${via}, a target that has stopped in an upload holds nobody else up`, async () => {
    await using dead = await tcpTarget((socket) => socket.pause());
    await using world = await startWorld({ targets: ["echo"] });
    await using stuck = await world.connect(dead.address, { via });
    const chunk = Buffer.alloc(64 * 1024);
    while (stuck.socket.write(chunk));
    const upload = setInterval(() => {
      if (!stuck.socket.writableNeedDrain) while (stuck.socket.write(chunk));
    }, 1);
    try {
      await standing(world, () => stuck.socket.bytesWritten - stuck.socket.writableLength);
      const before = stuck.socket.writableLength;
      await echoes(world, via);
      assert.ok(before > 0 && stuck.socket.writableLength === before, "the stopped target took something");
    } finally {
      clearInterval(upload);
    }
  });
}

/** Bytes that wait in the server for readers. */
function held(world: World<never>): number {
  let bytes = 0;
  for (const tunnel of world.server.tunnels.tunnels()) bytes += tunnel.bufferedBytes;
  return bytes;
}

/** Waits until `figure` has not moved for a while: the stopped side's buffers are full. */
async function standing(world: World<never>, figure = () => held(world)): Promise<number> {
  let before = -1;
  const stands = (): boolean => {
    const last = before;
    before = figure();
    return before === last;
  };
  await waitFor(stands, { deadlineMs: 20_000, everyMs: 300, what: "all to stand still" });
  return before;
}

/** Other streams work: an old one byte by byte, and new ones. */
async function echoes(world: World<"echo"> | World<"source" | "echo">, via: "uds" | "tls"): Promise<void> {
  await using open: Connection = await world.connect("echo", { via });
  for (let turn = 0; turn < ECHOES; turn++) {
    await open.send("x");
    assert.equal((await open.readBytes(1)).toString(), "x");
    if (turn % 20 !== 0) continue;
    await using fresh = await world.connect("echo", { via });
    assert.equal(fresh.status, 200);
  }
}
