import { createCipheriv, createHash, createHmac } from "node:crypto";
import type { TLSSocket } from "node:tls";

/** A traffic secret of a TLS 1.3 client, and the hash of its cipher suite (RFC 8446 §7.3). */
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

/** The secret under which a TLS 1.3 client sends after its handshake. Must be called before the handshake is done. */
export function secretOfClient(socket: TLSSocket): Promise<Buffer> {
  return new Promise((resolve) => {
    socket.on("keylog", (line) => {
      const [, found] = /^CLIENT_TRAFFIC_SECRET_0 \S+ ([0-9a-f]+)/.exec(String(line)) ?? [];
      if (found !== undefined) resolve(Buffer.from(found, "hex"));
    });
  });
}

/** The first KeyUpdates that a client sends, each in its own record. It must have sent no application data before. */
export function keyUpdates(secret: Buffer, count: number): Buffer {
  let keys: Keys = { secret, hash: secret.length === 32 ? "sha256" : "sha384" };
  const records: Buffer[] = [];
  for (let index = 0; index < count; index++) {
    const { record, next } = keyUpdate(keys);
    records.push(record);
    keys = next;
  }
  return Buffer.concat(records);
}
