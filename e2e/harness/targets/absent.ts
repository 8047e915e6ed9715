import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { listenOnLoopback, type TargetServer } from "./tcp.ts";

/**
 * Below the range that the kernel takes source ports from (ip_local_port_range): no outgoing connection of a busy test
 * can sit on a port between its choice and its use.
 */
const LOWEST = 10_240;
const FIRST_EPHEMERAL = 32_768;
/** Ports of a test process. It listens at the first as long as it lives, so that no other process gets the block. */
const BLOCK = 128;
const BLOCKS = (FIRST_EPHEMERAL - LOWEST) / BLOCK;
/** The ports of this process that were not given yet. */
const rest: number[] = [];
/** The block that is being taken. */
let taking: Promise<void> | undefined;

/**
 * A port on loopback where nobody listens: a dial is refused. No port is given twice by one process, nor to two
 * processes that run at a time.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = rest.shift();
    if (port !== undefined) {
      if (await isFree(port)) return port;
      continue;
    }
    taking ??= takeBlock();
    await taking;
  }
}

/** Rejects where all blocks are taken. */
async function takeBlock(): Promise<void> {
  for (let tries = 0; tries < BLOCKS; tries++) {
    const first = LOWEST + ((process.pid + tries) % BLOCKS) * BLOCK;
    const guard = createServer();
    try {
      await listenOnLoopback(guard, first);
    } catch {
      continue;
    }
    guard.unref();
    for (let port = first + 1; port < first + BLOCK; port++) rest.push(port);
    taking = undefined;
    return;
  }
  throw new Error("other test processes hold all ports");
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await listenOnLoopback(server, port);
  } catch {
    return false;
  }
  await new Promise((resolve) => server.close(resolve));
  return true;
}

/** Listens and then accepts nobody, because its thread sleeps. */
const LISTENER = `
const { parentPort, workerData } = require("node:worker_threads");
const server = require("node:net").createServer((socket) => socket.on("error", () => {}));
server.listen({ port: workerData.port, host: workerData.host, backlog: 1 }, () => {
  parentPort.postMessage(server.address().port);
  Atomics.wait(workerData.awake, 0, 0);
});`;
const PENDING_AFTER_MS = 250;
const FILL_LIMIT = 16;

/** A target that swallows SYN. */
export interface BlackHole extends TargetServer {
  /** Accepts from now on: who has dialled it is connected when the kernel sends the SYN again, 1 s or 3 s later. */
  open(): void;
}

/**
 * A target that swallows SYN. Linux drops the SYN of a listener whose accept queue is full
 * (tcp_abort_on_overflow=0), so a listener that sleeps and whose queue we fill needs no firewall and no privileges.
 */
export async function blackHoleTarget(host = "127.0.0.1", wantedPort = 0): Promise<BlackHole> {
  const awake = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(LISTENER, { eval: true, workerData: { host, port: wantedPort, awake } });
  const [port] = (await once(worker, "message")) as [number];
  const open = (): void => {
    Atomics.store(awake, 0, 1);
    Atomics.notify(awake, 0);
  };
  const fillers: Socket[] = [];
  const dispose = async () => {
    for (const socket of fillers) socket.destroy();
    await worker.terminate();
  };
  for (;;) {
    const socket = connect(port, host);
    fillers.push(socket);
    if (!(await connects(socket))) break;
    if (fillers.length >= FILL_LIMIT) {
      await dispose();
      throw new Error("the accept queue does not fill up: this kernel does not drop SYN");
    }
  }
  return { host, port, address: `${host}:${port}`, open, [Symbol.asyncDispose]: dispose };
}

function connects(socket: Socket): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), PENDING_AFTER_MS);
    const done = (connected: boolean) => {
      clearTimeout(timer);
      resolve(connected);
    };
    socket.on("connect", () => done(true));
    socket.on("error", () => done(false));
  });
}
