import { connect, type Socket } from "node:net";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  /** Connections that are held at once, as far as the other side leaves them open. */
  readonly connections: number;
  /** 127.0.66.1 and so on: that many addresses they come from. */
  readonly addresses: number;
}

const TICK_MS = 10;
const EACH_TICK = 20;

/** Clients that connect and say nothing, and come again when they are cut. */
await flooding<Args, { opened: number; open: number; cut: number }>(
  { opened: 0, open: 0, cut: 0 },
  async ({ port, connections, addresses }, counts) => {
    const open = (): void => {
      const localAddress = `127.0.66.${1 + (counts.opened++ % addresses)}`;
      const socket: Socket = connect({ port, host: "127.0.0.1", localAddress });
      counts.open++;
      socket.on("error", () => {}).resume();
      socket.on("close", () => {
        counts.open--;
        counts.cut++;
      });
    };
    await new Promise<void>((resolve) => {
      setInterval(() => {
        for (let count = EACH_TICK; count > 0 && counts.open < connections; count--) open();
        if (counts.opened >= connections) resolve();
      }, TICK_MS);
    });
  },
);
