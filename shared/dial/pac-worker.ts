/**
 * The thread that evaluates a PAC script once (started by pac-sandbox.ts). QuickJS, compiled to WebAssembly, runs the
 * script as it is. It has no access to objects of Node, only to the functions of PAC.
 */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { type JSValueHandle, QuickJS } from "quickjs-wasi";
import { foldersAroundProgram, IS_ONE_FILE } from "../basics/program.ts";
import { type PacFunction, type PacValue, pacFunctions } from "./pac-functions.ts";

/** The `workerData` of the thread. */
export interface PacTask {
  readonly script: string;
  readonly url: string;
  readonly host: string;
  /** Where answers to questions arrive. */
  readonly answers: MessagePort;
  /** The number of answers that have been sent: the thread sleeps until it grows. */
  readonly answered: Int32Array;
}

/** A message of the thread. */
export type PacMessage =
  | { readonly type: "ready" }
  | { readonly type: "question"; readonly about: PacSubject }
  | { readonly type: "result"; readonly result: string }
  | { readonly type: "problem"; readonly problem: string };

/** The addresses of a name, or this machine's own. */
export type PacSubject = { readonly name: string } | "own addresses";

/** Pages of 64 KiB, so 64 MiB. The largest known scripts need far less. */
const MEMORY_PAGES = 1_024;
/** Maximum length of an answer and of a problem, because a script may answer with all its memory. */
const MAX_ANSWER = 16 * 1024;
/** Maximum length of what a script gives to a function. A URL is shorter. */
const MAX_VALUE = 64 * 1024;
/** The id of the memory section of a module (WebAssembly 2.0, 5.5.8). */
const MEMORY_SECTION = 5;

const { script, url, host, answers, answered } = workerData as PacTask;
const vm = await QuickJS.create({
  wasm: limitMemory(readFileSync(join(packageFolder("quickjs-wasi"), "quickjs.wasm")), MEMORY_PAGES),
  // Output of QuickJS itself is dropped.
  wasi: () => ({ fd_write: () => 0 }),
});
const stringOf = vm.evalCode("String");
const known = new Map<string, readonly string[]>();

send({ type: "ready" });
send(evaluate());

function evaluate(): PacMessage {
  const around = {
    addressesOf: (name: string) => ask(`name ${name}`, { name }),
    ownAddresses: () => ask("own", "own addresses"),
    now: () => new Date(),
  };
  try {
    for (const [name, answer] of Object.entries(pacFunctions(around))) define(name, answer);
    vm.evalCode(script, "proxy.pac");
    // Chromium and Firefox know the first, Windows prefers the second where there are both. Either may be a constant.
    const found = vm.evalCode('typeof FindProxyForURL === "undefined" ? FindProxyForURLEx : FindProxyForURL');
    const result = vm.callFunction(found, vm.undefined, vm.newString(url), vm.newString(host));
    // For browsers, no answer means DIRECT.
    if (result.isUndefined || result.isNull) return { type: "result", result: "" };
    if (!result.isString) throw new Error(`FindProxyForURL answered with a ${result.typeof} instead of a string`);
    if (result.length > MAX_ANSWER) throw new Error(`it answered ${result.length} characters`);
    return { type: "result", result: result.toString() };
  } catch (error) {
    return { type: "problem", problem: String((error as Error).message).slice(0, MAX_ANSWER) };
  }
}

/** Gives a function to the script, which may replace it. */
function define(name: string, answer: PacFunction): void {
  const called = vm.newFunction(name, (...values) => {
    try {
      return vm.hostToHandle(answer(...values.map(toValue)));
    } catch (error) {
      // The script may show the stack, which has our paths.
      throw Object.assign(error as Error, { stack: "" });
    }
  });
  vm.setProp(vm.global, name, called);
}

function toValue(handle: JSValueHandle): PacValue {
  if (handle.isUndefined) return undefined;
  if (handle.isNull) return null;
  if (handle.isNumber) return handle.toNumber();
  if (handle.isBool) return vm.dump(handle) === true;
  const text = vm.callFunction(stringOf, vm.undefined, handle);
  if (text.length > MAX_VALUE) throw new RangeError(`a function of PAC was given ${text.length} characters`);
  return text.toString();
}

/** Sleeps until the answer is there. */
function ask(key: string, about: PacSubject): readonly string[] {
  const cached = known.get(key);
  if (cached !== undefined) return cached;
  const before = Atomics.load(answered, 0);
  send({ type: "question", about });
  Atomics.wait(answered, 0, before);
  const addresses: readonly string[] = receiveMessageOnPort(answers)?.message ?? [];
  known.set(key, addresses);
  return addresses;
}

function send(message: PacMessage): void {
  parentPort?.postMessage(message);
}

/** In the one file, what is used of the package is beside the program. */
function packageFolder(name: string): string {
  if (IS_ONE_FILE) return foldersAroundProgram()[0] ?? "";
  return dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
}

/**
 * Gives a maximum to the memory of a module that has none: one memory, whose flags are 0, and a minimum. The limit of
 * QuickJS has no effect in WebAssembly, where it does not know the size of its allocations.
 */
function limitMemory(module: Buffer, pages: number): Buffer<ArrayBuffer> {
  const magicAndVersion = 8;
  for (let at = magicAndVersion; at < module.length; ) {
    const [size, start] = readNumber(module, at + 1);
    const [memories, flags, ...minimum] = module.subarray(start, start + size);
    if (module[at] === MEMORY_SECTION && memories === 1 && flags === 0) {
      const limited = [memories, 1, ...minimum, ...writeNumber(pages)];
      const section = Buffer.from([MEMORY_SECTION, ...writeNumber(limited.length), ...limited]);
      return Buffer.concat([module.subarray(0, at), section, module.subarray(start + size)]);
    }
    at = start + size;
  }
  throw new Error("the sandbox for PAC scripts has no memory that can be limited");
}

/** An unsigned LEB128 number (5.2.2), and the position behind it. */
function readNumber(bytes: Buffer, at: number): [number: number, end: number] {
  const byte = bytes[at] ?? 0;
  if (byte < 0x80) return [byte, at + 1];
  const [rest, end] = readNumber(bytes, at + 1);
  return [(byte & 0x7f) + 0x80 * rest, end];
}

function writeNumber(number: number): number[] {
  return number < 0x80 ? [number] : [0x80 | (number % 0x80), ...writeNumber(Math.floor(number / 0x80))];
}
