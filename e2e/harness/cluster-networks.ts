import { AsyncLocalStorage } from "node:async_hooks";
import { createServer, type Socket } from "node:net";
import { SharedInterval } from "../../shared/basics/timers.ts";
import { NAMES_OF_TARGETS } from "../../shared/names/lookup.ts";
import { freePort } from "./targets/absent.ts";
import { TcpTarget } from "./targets/tcp.ts";

const HOST = "kubelet.internal";
const find = NAMES_OF_TARGETS.find;
const addCallback = SharedInterval.prototype.add;
const addressHere = new AsyncLocalStorage<string>();

/**
 * Networks in which the same `host:port` is another target, as in clusters that were all installed alike. Agents share
 * this process and its loopback, so what tells networks apart is their name service: whoever was started inside one is
 * answered with that network's address, also when its sockets ask, and long after.
 */
export class ClusterNetworks implements AsyncDisposable {
  readonly #targets: readonly TcpTarget[];
  /** The target of every caller of every cluster. */
  readonly target: string;

  private constructor(targets: readonly TcpTarget[], port: number) {
    this.#targets = targets;
    this.target = `${HOST}:${port}`;
    NAMES_OF_TARGETS.find = (host) => {
      const address = host === HOST ? addressHere.getStore() : undefined;
      return address === undefined ? find.call(NAMES_OF_TARGETS, host) : Promise.resolve([{ address, family: 4 }]);
    };
    // One timer serves all agents of this process. A carrier that it ends is dialled again in the network of its own
    // agent.
    SharedInterval.prototype.add = function (callback) {
      return addCallback.call(this, AsyncLocalStorage.bind(callback));
    };
  }

  /** `handle` serves the targets' connections, each for the network of that number. */
  static async create(count: number, handle: (socket: Socket, network: number) => void): Promise<ClusterNetworks> {
    const port = await freePort();
    const targets = [];
    for (let network = 0; network < count; network++) targets.push(await listen(network, port, handle));
    return new ClusterNetworks(targets, port);
  }

  inside<T>(network: number, start: () => T): T {
    return addressHere.run(addressOf(network), start);
  }

  /** The target in a network. */
  at(network: number): TcpTarget {
    const target = this.#targets[network];
    if (target === undefined) throw new Error(`there is no network ${network}`);
    return target;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    SharedInterval.prototype.add = addCallback;
    NAMES_OF_TARGETS.find = find;
    await Promise.all(this.#targets.map((target) => target[Symbol.asyncDispose]()));
  }
}

/** Loopback is a network of sixteen million addresses. */
function addressOf(network: number): string {
  return `127.1.${network >> 8}.${network & 255}`;
}

async function listen(network: number, port: number, handle: (socket: Socket, network: number) => void) {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  const target = new TcpTarget(server);
  server.on("connection", (socket) => {
    target.track(socket);
    handle(socket, network);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen({ host: addressOf(network), port, backlog: 4096 }, resolve);
  });
  return target;
}
