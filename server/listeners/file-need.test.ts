import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_CONNECTIONS } from "../../shared/admin/connections.ts";
import { filesLeft } from "../../shared/limits/file-descriptors.ts";
import { fileNeedWarning, filesNeeded, unauthenticatedAllowed } from "./file-need.ts";

const BOUNDS = {
  ...{ maxHandshakes: 1, maxWaitingHandshakes: 10, maxWaitingConnections: 100 },
  ...{ maxInnerHandshakes: 30, maxTokenVerifications: 20, maxPendingConnects: 1_000, maxAgents: 100, clusters: "" },
};

test("each port may hold who says nothing, who waits, who shakes hands and who has not asked yet", () => {
  assert.equal(unauthenticatedAllowed(BOUNDS, { tcpPorts: 0, unixSockets: 0, operatorPorts: 0 }), 0);
  assert.equal(unauthenticatedAllowed(BOUNDS, { tcpPorts: 2, unixSockets: 0, operatorPorts: 0 }), 224);
});

test("a unix socket has no handshakes, but may hold who has not asked yet", () => {
  assert.equal(unauthenticatedAllowed(BOUNDS, { tcpPorts: 0, unixSockets: 2, operatorPorts: 0 }), 200);
});

test("health and admin ports hold so many connections at most, and those need files, too", () => {
  const entries = { tcpPorts: 2, unixSockets: 0, operatorPorts: 2 };
  assert.equal(unauthenticatedAllowed(BOUNDS, entries), 224 + 2 * MAX_CONNECTIONS);
});

test("agents that are held, with what they have replaced and what they move to, awaited hellos, inner handshakes, tokens that are verified, callers that wait for an answer, and listeners need files beside unauthenticated peers", () => {
  assert.equal(filesNeeded(BOUNDS, { tcpPorts: 1, unixSockets: 0, operatorPorts: 0 }), 112 + 1_000 + 6 * 100 + 100 + 1);
  assert.equal(filesNeeded(BOUNDS, { tcpPorts: 1, unixSockets: 1, operatorPorts: 0 }), 212 + 1_000 + 6 * 100 + 100 + 2);
});

test("with the limit that the warning names nothing is few when all bounds are reached, and with one less something is", () => {
  const entries = { tcpPorts: 2, unixSockets: 1, operatorPorts: 0 };
  const needed = filesNeeded(BOUNDS, entries) + 40; // those of the process itself
  const named = Number(/ulimit -n (\d+)/.exec(fileNeedWarning(BOUNDS, entries, 1_024) ?? "")?.[1]);
  assert.equal(filesLeft(needed, named, "enough"), "enough");
  assert.equal(filesLeft(needed, named - 1, "enough"), "few");
  assert.equal(fileNeedWarning(BOUNDS, entries, named), undefined);
  assert.notEqual(fileNeedWarning(BOUNDS, entries, named - 1), undefined);
});
