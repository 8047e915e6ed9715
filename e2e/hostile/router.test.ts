import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { helloFor } from "../../shared/listen/testing/client-hello.ts";
import { startFlood } from "../harness/flood.ts";
import { flags } from "../harness/pki-files.ts";
import { startCulvert } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";

const NAME = "blue.example";
const HELLO = helloFor(NAME);
/** The second segment of an honest ClientHello comes this much later, ms. */
const SLOW_PATH_MS = 300;
const FLOODER = "127.0.66.1";
const HONEST = 20;
const DEADLINE_MS = 30_000;

/** An honest client's connection, whose first bytes have come back. */
async function arrive(port: number, index: number): Promise<Socket> {
  const socket = connect({ host: "127.0.0.1", port, localAddress: `127.0.10.${index + 1}` }).on("error", () => {});
  socket.write(HELLO.subarray(0, 50));
  setTimeout(() => socket.write(HELLO.subarray(50)), SLOW_PATH_MS);
  await once(socket, "data", { signal: AbortSignal.timeout(DEADLINE_MS) });
  return socket;
}

const FLOODS = {
  "begins ClientHellos and does not end them": { partial: true },
  "holds connections to a backend": { partial: false },
} as const;

for (const [what, how] of Object.entries(FLOODS)) {
  test(`one address that ${what} keeps nobody out of the router, and cuts nobody off`, async () => {
    using dir = new TempDir();
    await using echo = await TARGETS.echo();
    const routes = dir.file("routes.yaml");
    writeFileSync(routes, `sni: [${NAME}]\nto: ["${echo.address}"]\n`);
    const [port, healthPort] = [await freePort(), await freePort()];
    const bind = { bindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1", adminPort: 0 };
    const bounds = { maxHellos: 60, maxConnections: 80 };
    await using router = startCulvert(["router", ...flags({ routes, port, healthPort, ...bind, ...bounds })]);
    await router.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`);
    await using flood = await startFlood("client-hellos", {
      ...{ ports: [port], servernames: [NAME], localAddress: FLOODER, connections: 400, perSecond: 400, ...how },
    });
    await waitFor(() => Number(flood.counts["opened"]) > 2 * bounds.maxConnections, { what: "a full router" });

    const sockets: Socket[] = [];
    for (let index = 0; index < HONEST; index++) sockets.push(await arrive(port, index));
    for (const socket of sockets) {
      socket.write("still here");
      assert.match(
        String((await once(socket, "data", { signal: AbortSignal.timeout(DEADLINE_MS) }))[0]),
        /still here$/,
      );
      socket.destroy();
    }
  });
}
