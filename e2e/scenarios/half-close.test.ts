import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { atFull } from "../harness/counts.ts";
import { Payload, PayloadCheck } from "../harness/payload.ts";
import { halfCloseTarget, sendPayload } from "../harness/targets/plain.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const BYTES = atFull(100_000_000);
const DEADLINE_MS = 60_000;

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, a caller that has shut down its side still gets the whole answer`, async () => {
    await using target = await halfCloseTarget({ bytes: BYTES, seed: 1 });
    await using world = await startWorld();
    await using connection = await world.connect(target.address, { via });
    const { socket } = connection;
    const check = new PayloadCheck(1);
    socket.on("data", (chunk: Buffer) => check.take(chunk));
    socket.end("that is all from me");
    socket.resume();
    await once(socket, "end", { signal: AbortSignal.timeout(DEADLINE_MS) });
    check.expect(BYTES, "the answer");
    await waitFor(() => target.open === 0, { what: "the target's side to close" });
  });

  test(`over ${via}, a target that has shut down its side still gets the whole upload`, async () => {
    const check = new PayloadCheck(2);
    let ended = false;
    await using target = await tcpTarget((socket) => {
      socket.on("data", (chunk: Buffer) => check.take(chunk));
      socket.on("end", () => {
        ended = true;
      });
      socket.end("that is all from me");
    });
    await using world = await startWorld();
    await using connection = await world.connect(target.address, { via });
    assert.equal(await connection.readAll(), "that is all from me");
    assert.equal(check.bytes, 0, "the caller begins after the target's end");
    sendPayload(connection.socket, new Payload(2), BYTES);
    await waitFor(() => ended, { deadlineMs: DEADLINE_MS, what: "the end of the upload at the target" });
    check.expect(BYTES, "the upload");
    await waitFor(() => target.open === 0 && connection.socket.closed, { what: "both sides to close" });
  });
}
