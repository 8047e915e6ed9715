import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, connect, type Server, type Socket } from "node:net";
import { pipeline } from "node:stream";
import type { TargetServer } from "../../harness/targets/tcp.ts";
import { within } from "../../harness/wait.ts";
import type { Namespace } from "../../kubernetes/world/namespace.ts";

/** Listens in its own namespace and passes the listener on: a socket stays in the namespace in which it was created. */
const LISTENER = `
const server = require("node:net").createServer().listen(0, "127.0.0.1", () => process.send("listening", server));`;
const LISTENS_MS = 10_000;

/** A target in this process that listens on the loopback of a namespace. */
export class InsideTarget<Target extends TargetServer> implements TargetServer {
  readonly host = "127.0.0.1";
  readonly target: Target;
  readonly #listener: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(target: Target, listener: Server) {
    this.target = target;
    this.#listener = listener;
    // The setting for half-close in the other process is not passed on.
    Object.assign(listener, { allowHalfOpen: true });
    listener.on("connection", (socket) => this.#lead(socket));
  }

  static async open<Target extends TargetServer>({ name }: Namespace, target: Target): Promise<InsideTarget<Target>> {
    const argv = ["netns", "exec", name, process.execPath, "-e", LISTENER];
    const child = spawn("ip", argv, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    try {
      const [, listener] = (await within(handedOver(child), LISTENS_MS, `a listener in ${name}`)) as [string, Server];
      return new InsideTarget(target, listener);
    } finally {
      // Otherwise it would accept connections as well.
      const ended = once(child, "exit");
      if (child.kill("SIGKILL")) await ended;
    }
  }

  get port(): number {
    return (this.#listener.address() as AddressInfo).port;
  }

  get address(): string {
    return `${this.host}:${this.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#listener.close(resolve));
    await this.target[Symbol.asyncDispose]();
  }

  #lead(socket: Socket): void {
    const { host, port } = this.target;
    const onward = connect({ host, port, allowHalfOpen: true, noDelay: true });
    socket.setNoDelay(true);
    for (const one of [socket, onward]) {
      this.#sockets.add(one);
      one.on("close", () => this.#sockets.delete(one));
    }
    // An error on one side ends the other, where the test sees it.
    pipeline(socket, onward, () => {});
    pipeline(onward, socket, () => {});
  }
}

function handedOver(child: ChildProcess): Promise<unknown[]> {
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`it ended with code ${code}`);
  });
  ended.catch(() => {});
  return Promise.race([once(child, "message"), ended]);
}
