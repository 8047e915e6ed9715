import assert from "node:assert/strict";
import { test } from "node:test";
import { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError, type OutcomeCode } from "../../shared/outcomes.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { Claims } from "../clusters/claims.ts";
import { ClusterTunnels } from "./cluster-tunnels.ts";
import type { PeerFinder, ServerHop } from "./hop.ts";
import { openStream } from "./open-stream.ts";

const TARGET = { host: "10.0.0.1", port: 443 };
const RESERVED = new Claims([{ identities: ["CN=a"], hosts: ["10.0.0.1"], cidrs: [], defaultRoute: false }]);
const OPTIONS = {
  ...{ connectTimeoutMs: 5_000, dialTimeoutMs: 1_000, agentAckTimeoutMs: 1_000, agentWaitMs: 0 },
  maxPendingConnects: 10,
};

/** A directory that names as many holders as anybody asks for; each is asked, and answers with this code. */
function world(strict: boolean, code: OutcomeCode = "no_agent") {
  const cluster = new ClusterTunnels("blue", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 50 });
  cluster.rules = { strategies: ["destHost", "default"], strict, claims: RESERVED };
  const asked: string[] = [];
  const hopTo = (serverId: string): ServerHop => ({
    serverId,
    agent: undefined,
    open: async () => {
      asked.push(serverId);
      throw new CulvertError(code, `${serverId} says ${code}`);
    },
  });
  const peers: PeerFinder = {
    find: async (_cluster, except = []) => hopTo(`srv-${except.length + 1}`),
    trouble: undefined,
  };
  const open = (timeoutMs = 5_000): Promise<Stream> =>
    openStream(
      TARGET,
      cluster,
      {
        ...{ id: "x", deadline: performance.now() + timeoutMs, cancellation: new Cancellation<CulvertError>() },
        ...{ tunnel: undefined, choice: undefined, hop: undefined },
      },
      { options: OPTIONS, metrics: { pendingOpens: () => {} }, draining: () => false, peers: () => peers },
    );
  return { asked, open };
}

test("a claimed target is asked of four other servers at most, and the caller reads what the last one says", async () => {
  const { asked, open } = world(true);
  await assert.rejects(open(), { message: "srv-4 says no_agent" });
  assert.deepEqual(asked, ["srv-1", "srv-2", "srv-3", "srv-4"]);
});

test("where every agent of the cluster may be asked, a second server is the last one", async () => {
  const { asked, open } = world(false);
  await assert.rejects(open(), { message: "srv-2 says no_agent" });
  assert.deepEqual(asked, ["srv-1", "srv-2"]);
});

test("a server that has an agent of the claim, which fails, ends the search", async () => {
  const { asked, open } = world(true, "dial_refused");
  await assert.rejects(open(), { message: "srv-1 says dial_refused" });
  assert.deepEqual(asked, ["srv-1"]);
});
