import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { createSite } from "../harness/binaries.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

// A server that is busy with handshakes reads the CONNECT and then, with its tickets, meets the reset that came behind
// it: what it writes from then on is never done (shared/relay/reset.ts).

test("callers that ask over TLS and reset at once leave no socket, descriptor or stream at either end", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  await using server = await site.startServer();
  await using agent = await site.startAgent();
  const workerData = { listener: site.listener("tls"), target: echo.address, count: 200, atOnce: 50 };
  const flood = async () => {
    const workers = Array.from({ length: 3 }, () =>
      once(new Worker(RESETTING_CALLERS, { eval: true, workerData }), "exit"),
    );
    await within(Promise.all(workers), 60_000, "the callers");
    await waitFor(() => echo.open === 0, { what: "the end of all streams" });
  };
  await flood(); // what is opened once stays open
  const [atServer, atAgent] = [server.fdCount(), agent.fdCount()];
  await flood();
  const grown = () => [server.fdCount() - atServer, agent.fdCount() - atAgent];
  await waitFor(() => grown().every((count) => count <= 0), { what: "descriptors at their base" });
});

const RESETTING_CALLERS = `
  const { workerData: { listener, target, count, atOnce } } = require("node:worker_threads");
  const net = require("node:net");
  const tls = require("node:tls");
  let begun = 0;
  const next = () => {
    if (begun++ >= count) return;
    const raw = net.connect(listener.port, listener.host).on("error", () => {});
    const socket = tls.connect({ socket: raw, servername: "localhost", ...listener.tls }).on("error", () => {});
    socket.on("close", next);
    socket.on("secureConnect", () => {
      const reset = () => setTimeout(() => raw.resetAndDestroy(), Math.random() * 5);
      socket.write("CONNECT " + target + " HTTP/1.1\\r\\n\\r\\n", reset);
    });
  };
  for (let at = 0; at < atOnce; at++) next();
`;
