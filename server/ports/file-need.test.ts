import assert from "node:assert/strict";
import { test } from "node:test";
import { connectionsAllowed } from "./file-need.ts";

test("each port may hold who says nothing, who waits, who shakes hands and who has not asked yet", () => {
  const bounds = { maxHandshakes: 1, maxWaitingHandshakes: 10, maxWaitingConnections: 100 };
  assert.equal(connectionsAllowed(bounds, 0), 0);
  assert.equal(connectionsAllowed(bounds, 2), 224);
});
