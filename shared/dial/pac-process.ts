/**
 * The child process that evaluates a PAC script once (started by pac-sandbox.ts). QuickJS, compiled to WebAssembly,
 * runs the script. It has no access to files, sockets or objects of Node, only to the functions of PAC (pac-resolver).
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { networkInterfaces } from "node:os";
import { setFlagsFromString } from "node:v8";
import { createPacResolver } from "pac-resolver";
import { QuickJS } from "quickjs-wasi";
import type { PacAnswer, PacQuestion } from "./pac-sandbox.ts";

/** Pages of 64 KiB, so 64 MiB. The largest known scripts need far less. */
const MEMORY_LIMIT_PAGES = 1_024;
/** Maximum length of an answer, because a script may answer with all its memory. */
const MAX_ANSWER = 16 * 1024;
/** A documentation address (RFC 5737). Nothing is sent there; the kernel only selects the route. */
const OUTSIDE = "192.0.2.1";

/** Node.js opens its inspector at this signal. */
process.on("SIGUSR1", () => {});

/** The parent kills this process earlier; this ends an endless loop when the parent is gone. */
let until = Number.POSITIVE_INFINITY;
// QuickJS's own memory limit has no effect in WebAssembly, where it does not know the size of its allocations.
setFlagsFromString(`--wasm-max-mem-pages=${MEMORY_LIMIT_PAGES}`);
const quickjs = await QuickJS.create({ interruptHandler: () => performance.now() > until });

process.once("message", async (question: PacQuestion) => {
  process.send?.(await answer(question));
});
process.send?.("ready");

async function answer({ script, url, host, timeoutMs }: PacQuestion): Promise<PacAnswer> {
  until = performance.now() + 2 * timeoutMs;
  try {
    const sandbox = { alert: () => {}, myIpAddress };
    const resolve = createPacResolver(quickjs, script, { filename: "proxy.pac", sandbox });
    // For browsers, no answer means DIRECT.
    const result: unknown = (await resolve(url, host)) ?? "";
    if (typeof result !== "string")
      throw new Error(`FindProxyForURL answered with a ${typeof result} instead of a string`);
    if (result.length > MAX_ANSWER) throw new Error(`it answered ${result.length} characters`);
    return { result, problem: undefined };
  } catch (error) {
    return { result: "", problem: String((error as Error).message).slice(0, MAX_ANSWER) };
  }
}

/** The default of pac-resolver opens a TCP connection to 8.8.8.8, which firewalls drop. */
async function myIpAddress(): Promise<string> {
  const socket = createSocket("udp4");
  try {
    socket.connect(53, OUTSIDE);
    await once(socket, "connect");
    return socket.address().address;
  } catch {
    const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    return addresses.find(({ family, internal }) => family === "IPv4" && !internal)?.address ?? "127.0.0.1";
  } finally {
    socket.close();
  }
}
