import { connect as connectTcp, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { keyUpdates, secretOfClient } from "../../../shared/listen/testing/key-updates.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly localAddress: string;
  readonly connections: number;
  /** KeyUpdates of one connection, made beforehand and sent as fast as the server takes them. */
  readonly each: number;
}

function flood(
  { port, servername, localAddress, each }: Args,
  counts: { sent: number; cut: number; opened: number },
): Promise<Socket> {
  return new Promise((resolve) => {
    const raw = connectTcp({ port, host: "127.0.0.1", localAddress }).on("error", () => {});
    const socket = connectTls({ socket: raw, servername, rejectUnauthorized: false, minVersion: "TLSv1.3" });
    socket.on("error", () => {});
    const secret = secretOfClient(socket);
    socket.once("secureConnect", async () => {
      await sleep(20); // the last record of the handshake leaves first
      counts.opened++;
      raw.write(keyUpdates(await secret, each), (error) => {
        if (!error) counts.sent += each;
      });
      resolve(raw);
    });
    raw.on("close", () => {
      counts.cut++;
      resolve(raw);
    });
  });
}

/** Clients without a certificate that send nothing but KeyUpdates, and come again when they are cut. */
await flooding<Args, { sent: number; cut: number; opened: number }>(
  { sent: 0, cut: 0, opened: 0 },
  async (args, counts) => {
    const again = (): void => {
      void flood(args, counts).then((raw) => (raw.destroyed ? setTimeout(again, 10) : raw.on("close", again)));
    };
    await flood(args, counts).then((raw) => raw.on("close", again));
    for (let index = 1; index < args.connections; index++) again();
  },
);
