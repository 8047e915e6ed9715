import assert from "node:assert/strict";
import { test } from "node:test";
import { deferred } from "../../shared/basics/promises.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import { NAMES_OF_TARGETS } from "../../shared/names/lookup.ts";
import { ClusterNetworks } from "./cluster-networks.ts";

test("what a shared timer starts in one network stays in that network", async () => {
  await using networks = await ClusterNetworks.create(2, (socket) => socket.destroy());
  const [host = ""] = networks.target.split(":");
  const timer = SharedInterval.every(1);
  const firstAddresses = await Promise.all(
    [0, 1].map((network) =>
      networks.inside(network, async () => {
        const { promise, resolve } = deferred<unknown>();
        const node = timer.add(() => resolve(NAMES_OF_TARGETS.find(host)));
        return promise.finally(() => node.leave());
      }),
    ),
  );
  assert.deepEqual(firstAddresses, [[{ address: "127.1.0.0", family: 4 }], [{ address: "127.1.0.1", family: 4 }]]);
});
