import { createSocket } from "node:dgram";
import { once } from "node:events";
import { isIP, isIPv4 } from "node:net";
import { networkInterfaces } from "node:os";
import { domainToASCII } from "node:url";
import { MessageChannel, Worker } from "node:worker_threads";
import { programFile } from "../basics/program.ts";
import { seconds } from "../basics/text.ts";
import { NAMES } from "../names/lookup.ts";
import { printable } from "../outcomes.ts";
import type { PacMessage, PacSubject, PacTask } from "./pac-worker.ts";

export interface PacQuestion {
  readonly script: string;
  readonly url: string;
  readonly host: string;
  /** For the script, without the names that it looks up. */
  readonly timeoutMs: number;
}

export interface PacOutside {
  /** The addresses of a name. Rejects if there are none. */
  readonly find: (host: string) => Promise<readonly { readonly address: string }[]>;
  /** Called with a problem that does not stop the script. */
  readonly onNote: (note: string) => void;
  /** A name without an answer until then has no address, as in browsers. All names have three times as long. */
  readonly nameTimeoutMs: number;
}

/** Time for the thread to start on a busy machine. */
const START_TIMEOUT_MS = 20_000;
const NAME_TIMEOUT_MS = 2_000;
/** Browsers look up fewer for one answer. */
const MAX_NAMES = 64;
/** The WebAssembly memory of the script comes in addition; it has a limit of its own. */
const HEAP_MIB = 64;

/**
 * Runs FindProxyForURL(url, host) of an untrusted script as it is, in a thread of its own, which ends with it. An
 * endless loop, a deep recursion or a regular expression without end cannot stop the thread of the connections. The
 * functions of PAC answer at once: where one needs a name, the thread sleeps until this one has the addresses. Rejects
 * with an Error whose message continues "the script".
 */
export function evaluatePac(
  { script, url, host, timeoutMs }: PacQuestion,
  signal: AbortSignal,
  outside: Partial<PacOutside> = {},
): Promise<string> {
  const { find = (name) => NAMES.find(name), onNote = () => {}, nameTimeoutMs = NAME_TIMEOUT_MS } = outside;
  const namesTimeoutMs = 3 * nameTimeoutMs;
  return new Promise((resolve, reject) => {
    const { port1, port2 } = new MessageChannel();
    const answered = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const task: PacTask = { script, url, host, answers: port2, answered };
    const worker = new Worker(programFile("shared/dial/pac-worker"), {
      workerData: task,
      transferList: [port2],
      env: {},
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
    });
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      port1.close();
      void worker.terminate();
    };
    const fail = (why: string): void => {
      end();
      reject(new Error(why));
    };
    const onError = ({ code, message }: NodeJS.ErrnoException): void =>
      fail(code === "ERR_WORKER_OUT_OF_MEMORY" ? "failed: out of memory" : `could not be run: ${printable(message)}`);
    const onAbort = (): void => fail("was not done when its answer was wanted");
    let timer = setTimeout(fail, START_TIMEOUT_MS, "could not be started in time");
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();

    let [leftMs, namesLeftMs, names] = [timeoutMs, namesTimeoutMs, 0];
    let since = 0;
    const goOn = (): void => {
      since = performance.now();
      timer = setTimeout(fail, leftMs, `took longer than ${seconds(timeoutMs)}`);
    };
    const answer = async (about: PacSubject): Promise<void> => {
      clearTimeout(timer);
      leftMs -= performance.now() - since;
      if (++names > MAX_NAMES) return fail(`looks up more than ${MAX_NAMES} names`);
      const began = performance.now();
      const limitMs = Math.min(nameTimeoutMs, namesLeftMs);
      if (limitMs <= 0) return fail(`waited ${seconds(namesTimeoutMs)} for the names that it looks up`);
      const found = await (about === "own addresses" ? ownAddresses() : addressesOf(about.name, find, limitMs, onNote));
      namesLeftMs -= performance.now() - began;
      if (signal.aborted) return;
      port1.postMessage(found);
      Atomics.add(answered, 0, 1);
      Atomics.notify(answered, 0);
      goOn();
    };
    worker.on("message", (message: PacMessage) => {
      if (message.type === "question") return void answer(message.about).catch(onError);
      clearTimeout(timer);
      if (message.type === "ready") return goOn();
      if (message.type === "problem") return fail(`failed: ${printable(message.problem)}`);
      end();
      resolve(message.result);
    });
    worker.on("error", onError);
    worker.on("exit", (code) => fail(`ended without an answer (exit code ${code})`));
  });
}

/** None, if the name has none or no name server answers in time. */
async function addressesOf(
  host: string,
  find: PacOutside["find"],
  limitMs: number,
  onNote: PacOutside["onNote"],
): Promise<string[]> {
  if (isIP(host) !== 0) return [host];
  const name = domainToASCII(host);
  if (name === "" || name.length > 253) return [];
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<[]>((resolve) => {
    timer = setTimeout(() => {
      onNote(
        `the name ${printable(name, 80)}, which the PAC script looks up, had no answer within ${seconds(limitMs)}`,
      );
      resolve([]);
    }, limitMs);
  });
  const found = await Promise.race([find(name).catch(() => []), late]);
  clearTimeout(timer);
  return found.map(({ address }) => address);
}

/** Documentation addresses (RFC 5737, RFC 3849). Nothing is sent there; the kernel only selects the route. */
const OUTSIDE = { udp4: "192.0.2.1", udp6: "2001:db8::1" } as const;

/** The addresses that connections to other networks come from, or at least one of an interface. */
async function ownAddresses(): Promise<string[]> {
  const found = (await Promise.all([ownAddress("udp6"), ownAddress("udp4")])).flatMap((address) => address ?? []);
  if (found.some((address) => isIPv4(address))) return found;
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const other = all.find(({ family, internal }) => family === "IPv4" && !internal);
  return other === undefined ? found : [...found, other.address];
}

async function ownAddress(type: "udp4" | "udp6"): Promise<string | undefined> {
  const socket = createSocket(type);
  try {
    socket.connect(53, OUTSIDE[type]);
    await once(socket, "connect");
    return socket.address().address;
  } catch {
    return undefined;
  } finally {
    socket.close();
  }
}
