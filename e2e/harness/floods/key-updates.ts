import { createCipheriv, createHash, createHmac } from "node:crypto";
import { connect as connectTcp, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly localAddress: string;
  readonly connections: number;
  /** KeyUpdates of one connection, made beforehand and sent as fast as the server takes them. */
  readonly each: number;
}

/** What a client of TLS 1.3 sends under one of its traffic secrets (RFC 8446 §7.3). */
interface Keys {
  readonly secret: Buffer;
  readonly hash: "sha256" | "sha384";
}

const KEY_UPDATE = Buffer.from([24, 0, 0, 1, 0, 22]); // update_not_requested, then the inner content type: handshake

function expandLabel({ secret, hash }: Keys, label: string, length: number): Buffer {
  const full = Buffer.from(`tls13 ${label}`, "latin1");
  const info = Buffer.concat([Buffer.from([length >> 8, length & 255, full.length]), full, Buffer.from([0, 1])]);
  return createHmac(hash, secret).update(info).digest().subarray(0, length);
}

/** One record with a KeyUpdate, and the keys that follow it. */
function keyUpdate(keys: Keys): { readonly record: Buffer; readonly next: Keys } {
  const [key, iv] = [expandLabel(keys, "key", keys.hash === "sha256" ? 16 : 32), expandLabel(keys, "iv", 12)];
  const header = Buffer.from([23, 3, 3, 0, KEY_UPDATE.length + 16]);
  const cipher =
    keys.hash === "sha256" ? createCipheriv("aes-128-gcm", key, iv) : createCipheriv("aes-256-gcm", key, iv);
  cipher.setAAD(header);
  const sealed = Buffer.concat([cipher.update(KEY_UPDATE), cipher.final(), cipher.getAuthTag()]);
  const length = createHash(keys.hash).digest().length;
  const next = { secret: expandLabel(keys, "traffic upd", length), hash: keys.hash };
  return { record: Buffer.concat([header, sealed]), next };
}

function flood(
  { port, servername, localAddress, each }: Args,
  counts: { sent: number; cut: number; opened: number },
): Promise<Socket> {
  return new Promise((resolve) => {
    const raw = connectTcp({ port, host: "127.0.0.1", localAddress }).on("error", () => {});
    const socket = connectTls({ socket: raw, servername, rejectUnauthorized: false, minVersion: "TLSv1.3" });
    let secret = Buffer.alloc(0);
    socket.on("error", () => {});
    socket.on("keylog", (line) => {
      const [, found] = /^CLIENT_TRAFFIC_SECRET_0 \S+ ([0-9a-f]+)/.exec(String(line)) ?? [];
      if (found !== undefined) secret = Buffer.from(found, "hex");
    });
    socket.once("secureConnect", async () => {
      await sleep(20); // the last record of the handshake leaves first
      counts.opened++;
      let keys: Keys = { secret, hash: secret.length === 32 ? "sha256" : "sha384" };
      const records: Buffer[] = [];
      for (let index = 0; index < each; index++) {
        const { record, next } = keyUpdate(keys);
        records.push(record);
        keys = next;
      }
      raw.write(Buffer.concat(records), (error) => {
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
