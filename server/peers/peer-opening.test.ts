import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { encodePeerAnswer, parseCarrier } from "../../shared/wire/peer-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { pair } from "../../shared/yamux/testing/sessions.ts";
import type { PeerLink } from "./peer-link.ts";
import { openAtOwner } from "./peer-opening.ts";

test("what comes back for an agent is charged to its cluster, and not to all that share the link", async () => {
  const { client, server } = pair();
  const link = {
    ...{ location: { serverId: "srv-a", address: "10.0.0.1:1" }, ownId: "srv-b", endWhenUnreachable: () => {} },
    open: (...asked: Parameters<PeerLink["open"]>) => client.session.open(...asked),
  };
  const memory = new MemoryPool(Number.POSITIVE_INFINITY).share("blue");
  const facts = { cluster: "blue", source: { address: "10.0.0.9", port: 1 }, chain: [] };
  const { signal } = new AbortController();
  const opened = openAtOwner(link as unknown as PeerLink, facts, signal, { ackTimeoutMs: 10_000, memory });
  void opened.catch(() => {});
  await until(() => server.accepted.length === 1);
  const [far] = server.accepted;
  assert.ok(far !== undefined);
  far.on("error", () => {});
  receiveHead(
    far,
    (head) => {
      assert.equal(parseCarrier(head).cluster, "blue");
      far.write(encodePeerAnswer({ ok: true, agent: "" }));
      far.write(Buffer.alloc(10_000));
    },
    () => {},
  );
  const stream = await opened;
  await until(() => memory.held === 10_000);
  stream.destroy();
  await until(() => memory.held === 0);
});
