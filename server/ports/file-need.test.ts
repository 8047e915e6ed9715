import assert from "node:assert/strict";
import { test } from "node:test";
import { fileNeedWarning, filesNeeded, strangersAllowed } from "./file-need.ts";

const BOUNDS = {
  ...{ maxHandshakes: 1, maxWaitingHandshakes: 10, maxWaitingConnections: 100 },
  ...{ maxPendingConnects: 1_000, maxAgents: 10_000 },
};

test("each port may hold who says nothing, who waits, who shakes hands and who has not asked yet", () => {
  assert.equal(strangersAllowed(BOUNDS, { tcpPorts: 0, unixSockets: 0 }), 0);
  assert.equal(strangersAllowed(BOUNDS, { tcpPorts: 2, unixSockets: 0 }), 224);
});

test("a unix socket has no handshakes, but may hold who has not asked yet", () => {
  assert.equal(strangersAllowed(BOUNDS, { tcpPorts: 0, unixSockets: 2 }), 200);
});

test("agents that are held, and callers that wait for an answer, need files beside the strangers", () => {
  const entries = { tcpPorts: 1, unixSockets: 0 };
  assert.equal(filesNeeded(BOUNDS, entries), 112 + 11_000);
  assert.equal(fileNeedWarning(BOUNDS, entries, 11_112), undefined);
  assert.match(
    fileNeedWarning(BOUNDS, entries, 11_111) ?? "",
    /11111 files open, .* can take 11112: .*ulimit -n 11112/,
  );
});
