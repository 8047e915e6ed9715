/**
 * The process of one evaluation of a PAC script (pac-sandbox.ts starts it). QuickJS, compiled to WebAssembly, runs the
 * script: no file, no socket and no object of Node's is in its reach, only the functions that PAC has (pac-resolver).
 */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { networkInterfaces } from "node:os";
import { setFlagsFromString } from "node:v8";
import { createPacResolver } from "pac-resolver";
import { QuickJS } from "quickjs-wasi";
import type { PacAnswer, PacQuestion } from "./pac-sandbox.ts";

/** PAC scripts are lists of names; the largest known are far below. Pages of 64 KiB: 64 MiB. */
const MEMORY_LIMIT_PAGES = 1_024;
/** A script may answer with all its memory, of which our parent wants no copy. */
const MAX_ANSWER = 16 * 1024;
/** A documentation address (RFC 5737): nothing is sent there, the kernel is asked for its route only. */
const OUTSIDE = "192.0.2.1";

/** Our parent kills us long before; this ends a loop whose parent is gone. */
let until = Number.POSITIVE_INFINITY;
// QuickJS has a limit of its own, which counts nothing here: WebAssembly tells it no size of what it has allocated.
// Here and not in shared/node: this process may read no file of ours but this one.
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
    const result: unknown = await createPacResolver(quickjs, script, { filename: "proxy.pac", sandbox })(url, host);
    if (typeof result === "string") {
      const isShort = result.length <= MAX_ANSWER;
      return isShort
        ? { result, problem: undefined }
        : { result: "", problem: `it answered ${result.length} characters` };
    }
    // To browsers, no answer is DIRECT.
    if (result === null || result === undefined) return { result: "", problem: undefined };
    return { result: "", problem: `FindProxyForURL answered with a ${typeof result} instead of a string` };
  } catch (error) {
    return { result: "", problem: String((error as Error).message).slice(0, MAX_ANSWER) };
  }
}

/** pac-resolver's own asks by a TCP connection to 8.8.8.8, which a firewall swallows. */
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
