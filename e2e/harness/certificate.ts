import { createHash, createSign, generateKeyPairSync, type KeyObject } from "node:crypto";
import { isIPv4 } from "node:net";

/** A self-signed certificate and its key, both PEM. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/**
 * A self-signed ECDSA P-256 certificate for targets and raw relays: it is its own CA (RFC 5280 §4.1).
 * Written by hand so that the harness needs neither the product nor a library to start.
 */
export function selfSigned(name = "localhost", addresses: readonly string[] = ["127.0.0.1"]): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ecdsaSha256 = sequence(oid("2a8648ce3d040302"));
  const subject = sequence(set(sequence(oid("550403"), tlv(0x0c, Buffer.from(name)))));
  const body = sequence(
    tlv(0xa0, tlv(0x02, Buffer.from([2]))), // version 3
    tlv(0x02, serialOf(publicKey)),
    ecdsaSha256,
    subject,
    sequence(utcTime(Date.now() - 3_600_000), utcTime(Date.now() + 30 * 86_400_000)),
    subject,
    publicKey.export({ type: "spki", format: "der" }),
    tlv(0xa3, sequence(subjectAltName(name, addresses), isCa())),
  );
  const signature = createSign("sha256").update(body).sign(privateKey);
  const der = sequence(body, ecdsaSha256, tlv(0x03, Buffer.concat([Buffer.from([0]), signature])));
  const lines = der.toString("base64").replace(/.{64}/g, "$&\n").trimEnd();
  return {
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}

function subjectAltName(name: string, addresses: readonly string[]): Buffer {
  const names = [tlv(0x82, Buffer.from(name))];
  for (const address of addresses.filter(isIPv4)) names.push(tlv(0x87, Buffer.from(address.split(".").map(Number))));
  return sequence(oid("551d11"), tlv(0x04, sequence(...names)));
}

function isCa(): Buffer {
  return sequence(oid("551d13"), tlv(0x01, Buffer.from([0xff])), tlv(0x04, sequence(tlv(0x01, Buffer.from([0xff])))));
}

function serialOf(key: KeyObject): Buffer {
  const digest = createHash("sha256")
    .update(key.export({ type: "spki", format: "der" }))
    .digest()
    .subarray(0, 16);
  digest[0] = ((digest[0] ?? 0) & 0x3f) | 0x40; // positive, and no leading zero
  return digest;
}

function utcTime(ms: number): Buffer {
  const text = new Date(ms).toISOString().replace(/[-:T]/g, "").slice(2, 14);
  return tlv(0x17, Buffer.from(`${text}Z`));
}

function oid(hex: string): Buffer {
  return tlv(0x06, Buffer.from(hex, "hex"));
}

function sequence(...parts: Buffer[]): Buffer {
  return tlv(0x30, Buffer.concat(parts));
}

function set(...parts: Buffer[]): Buffer {
  return tlv(0x31, Buffer.concat(parts));
}

/** Tag, length, value (X.690 §8.1). */
function tlv(tag: number, value: Buffer): Buffer {
  const { length } = value;
  const head =
    length < 0x80 ? [tag, length] : length < 0x100 ? [tag, 0x81, length] : [tag, 0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from(head), value]);
}
