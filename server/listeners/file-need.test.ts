import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_CONNECTIONS } from "../../shared/admin/connections.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import { filesNeeded, unauthenticatedAllowed } from "./file-need.ts";

const { options: BOUNDS } = contextOf({
  ...{ maxHandshakes: 1, maxWaitingHandshakes: 10, maxWaitingConnections: 100 },
  ...{ maxInnerHandshakes: 30, maxTokenVerifications: 20, maxPendingConnects: 1_000, maxAgents: 100, clusters: "" },
});

test("each port may hold who says nothing, who waits, who shakes hands and who has not asked yet", () => {
  assert.equal(unauthenticatedAllowed(BOUNDS, { tcpPorts: 0, unixSockets: 0, operatorPorts: 0 }), 0);
  assert.equal(unauthenticatedAllowed(BOUNDS, { tcpPorts: 2, unixSockets: 0, operatorPorts: 0 }), 224);
});

test("a unix socket has no handshakes, but may hold who has not asked yet", () => {
  assert.equal(unauthenticatedAllowed(BOUNDS, { tcpPorts: 0, unixSockets: 2, operatorPorts: 0 }), 200);
});

test("health and admin ports hold a limited number of connections, and those need files, too", () => {
  const entries = { tcpPorts: 2, unixSockets: 0, operatorPorts: 2 };
  assert.equal(unauthenticatedAllowed(BOUNDS, entries), 224 + 2 * MAX_CONNECTIONS);
});

test("agents that are held, with what they have replaced and what they move to, awaited hellos, inner handshakes, tokens that are verified, callers that wait for an answer, and listeners need files beside unauthenticated peers", () => {
  assert.equal(filesNeeded(BOUNDS, { tcpPorts: 1, unixSockets: 0, operatorPorts: 0 }), 112 + 1_000 + 6 * 100 + 100 + 1);
  assert.equal(filesNeeded(BOUNDS, { tcpPorts: 1, unixSockets: 1, operatorPorts: 0 }), 212 + 1_000 + 6 * 100 + 100 + 2);
});
