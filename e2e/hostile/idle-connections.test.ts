import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { assertUnharmed } from "../harness/bystander.ts";
import { startFlood } from "../harness/flood.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const FLOODER = "127.0.66.1";
/** Of one cluster or port; four times as many in the process. */
const MOST = 50;
/** The request of an honest caller on a slow path comes this time after its handshake, ms. */
const SLOW_PATH_MS = 1_000;

/** The status of a CONNECT whose header comes late. */
async function slowCaller({ blue, callerPort, target }: TwoTenants): Promise<string> {
  const tls = { ca: blue.ca, servername: blue.sni, ...(await blue.callerPair) };
  const socket = connectTls({ host: "127.0.0.1", port: callerPort, ...tls }).on("error", () => {});
  try {
    await once(socket, "secureConnect", { signal: AbortSignal.timeout(10_000) });
    await sleep(SLOW_PATH_MS);
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    const [answer] = await once(socket, "data", { signal: AbortSignal.timeout(10_000) });
    return String(answer).split("\r\n", 1)[0] as string;
  } catch (error) {
    return (error as Error).message;
  } finally {
    socket.destroy();
  }
}

test("connections that pass TLS and ask for nothing are bounded in the process, and displace their own", async (t) => {
  await using tenants = await startTwoTenants({ server: { maxWaitingConnections: MOST } });
  const { red, blue, callerPort, agentPort } = tenants;
  await using flood = await startFlood("silent", {
    ...{ ports: [callerPort, agentPort], servernames: [red.sni, blue.sni], localAddress: FLOODER },
    ...{ connections: 1_000, perSecond: 300 },
  });
  await waitFor(() => Number(flood.counts["secured"]) > 6 * MOST, { deadlineMs: 20_000, what: "a full room" });
  const callers = await Promise.all(Array.from({ length: 5 }, () => slowCaller(tenants)));
  assert.deepEqual([...new Set(callers)], ["HTTP/1.1 200 Connection Established"]);
  t.diagnostic(await assertUnharmed(tenants));
  const { open, opened } = await flood.stop();
  // Some are in their handshake, and are bounded by --max-handshakes.
  assert.ok(Number(open) <= 4 * MOST + 100, `${open} of ${opened} are held`);
});
