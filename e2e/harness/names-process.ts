import { createServer } from "node:net";
import { startNameServer } from "../../shared/names/testing/name-server.ts";
import { ECHO_PORT, QUERY_MS, SEARCH } from "./names-network.ts";

/** The name server of a `NamesNetwork`, and an echo. It prints the names that it does not answer. */
const known = /^(echo|server)\.test$|^service-\d+\.blue\.cluster\.test$/;

await startNameServer(
  (name, type) => {
    if (name.startsWith("silent")) return undefined;
    if (!known.test(name)) return "NXDOMAIN";
    return type === "A" ? ["127.0.0.1"] : [];
  },
  {
    port: 53,
    delayMs: (name) => (SEARCH.some((domain) => name.endsWith(`.${domain}`)) ? QUERY_MS : 0),
    onQuestion: (name) => {
      if (name.startsWith("silent")) console.log(`silence for ${name}`);
    },
  },
);
createServer((socket) => socket.on("error", () => {}).pipe(socket)).listen(ECHO_PORT, "127.0.0.1", () => {
  console.log("listening");
});
