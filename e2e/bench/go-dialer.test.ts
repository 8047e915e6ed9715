import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { test } from "node:test";
import { TempDir } from "../harness/temp.ts";
import { goMissing } from "../interop/go-peer.ts";
import { listen } from "./floors/sockets.ts";
import { GoDialer } from "./go-dialer.ts";

const OK = "HTTP/1.1 200 Connection Established\r\n\r\n";

test("only a dial that ends with a 200 and nothing behind it counts", { skip: goMissing ?? false }, async () => {
  using dir = new TempDir();
  const path = dir.file("s");
  const answers = [OK, "HTTP/1.1 503 no agent\r\n\r\n", `${OK}too early`];
  const requests = new Set<string>();
  const server = createServer((socket: Socket) => {
    socket.on("error", () => {});
    socket.once("data", (request) => {
      requests.add(String(request));
      socket.end(answers.shift() ?? OK);
    });
  });
  await listen(server, { path });
  try {
    const dialer = await GoDialer.build();
    const dial = { path, connect: "127.0.0.1:1" };
    const result = await dialer.run({ dial, protocol: "http1", what: "dials", count: 10, inFlight: 1 });
    assert.equal(result.ms.length, 8);
    assert.equal(result.failures, 2);
    assert.match(result.firstFailure, /503 no agent/);
    assert.deepEqual([...requests], ["CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]);
  } finally {
    server.close();
  }
});
