import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { setTimeout as wait } from "node:timers/promises";

const TYPES: Readonly<Record<number, "A" | "AAAA">> = { 1: "A", 28: "AAAA" };
const RCODES = { NOERROR: 0, SERVFAIL: 2, NXDOMAIN: 3, REFUSED: 5 };

/** Addresses of the type asked for, a response code, an answer that is too long for UDP, or silence. */
export type NameAnswer = readonly string[] | Exclude<keyof typeof RCODES, "NOERROR"> | "truncated" | undefined;

/** A name server over UDP and TCP. */
export interface TestNameServer extends AsyncDisposable {
  readonly port: number;
  /** `TYPE name` for each question over UDP. */
  readonly asked: string[];
}

export interface NameServerOptions {
  readonly host?: string;
  readonly port?: number;
  readonly delayMs?: number | ((name: string) => number);
  /** Called for each question over UDP. */
  readonly onQuestion?: (name: string) => void;
}

export async function startNameServer(
  answer: (name: string, type: "A" | "AAAA", via: "udp" | "tcp") => NameAnswer,
  { host = "127.0.0.1", port = 0, delayMs = 0, onQuestion }: NameServerOptions = {},
): Promise<TestNameServer> {
  const asked: string[] = [];
  const tcp = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (bytes: Buffer) => {
      // Several questions may come at once.
      for (let at = 0; at < bytes.length; at += 2 + bytes.readUInt16BE(at)) {
        const query = bytes.subarray(at + 2, at + 2 + bytes.readUInt16BE(at));
        const { name, type } = questionOf(query);
        const reply = type === undefined ? undefined : replyTo(query, answer(name, type, "tcp"));
        if (reply === undefined) continue;
        const length = Buffer.alloc(2);
        length.writeUInt16BE(reply.length);
        socket.write(Buffer.concat([length, reply]));
      }
    });
  });
  const udp = await bindBoth(tcp, port, host);
  let isOpen = true;
  udp.on("message", async (query, { address, port: from }) => {
    const { name, type } = questionOf(query);
    if (type === undefined) return;
    asked.push(`${type} ${name}`);
    const reply = replyTo(query, answer(name, type, "udp"));
    onQuestion?.(name);
    const ms = typeof delayMs === "number" ? delayMs : delayMs(name);
    if (ms > 0) await wait(ms);
    if (reply !== undefined && isOpen) udp.send(reply, from, address);
  });
  return {
    port: udp.address().port,
    asked,
    async [Symbol.asyncDispose]() {
      isOpen = false;
      udp.close();
      tcp.close();
      await once(tcp, "close");
    },
  };
}

/** Binds TCP and UDP to one port. A port that is free for TCP may be taken for UDP. */
async function bindBoth(tcp: Server, port: number, host: string): Promise<Socket> {
  for (let tries = 1; ; tries++) {
    tcp.listen(port, host);
    await once(tcp, "listening");
    const udp = createSocket("udp4");
    try {
      udp.bind((tcp.address() as AddressInfo).port, host);
      await once(udp, "listening");
      return udp;
    } catch (error) {
      udp.close();
      tcp.close();
      await once(tcp, "close");
      if (port !== 0 || tries === 10) throw error;
    }
  }
}

function questionOf(query: Buffer): { readonly name: string; readonly type: "A" | "AAAA" | undefined; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length !== 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: TYPES[query.readUInt16BE(at + 1)], end: at + 5 };
}

/** RFC 1035, 4.1. */
function replyTo(query: Buffer, answer: NameAnswer): Buffer | undefined {
  if (answer === undefined) return undefined;
  const isList = typeof answer !== "string";
  const records = isList ? answer.map(bytesOf) : [];
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  header[2] = answer === "truncated" ? 0x83 : 0x81;
  header[3] = 0x80 | (isList || answer === "truncated" ? RCODES.NOERROR : RCODES[answer]);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(records.length, 6);
  const body = records.map((address) => {
    const type = address.length === 4 ? 1 : 28;
    return Buffer.concat([Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 60, 0, address.length]), address]);
  });
  return Buffer.concat([header, query.subarray(12, questionOf(query).end), ...body]);
}

/** IPv6 addresses without an ellipsis only. */
function bytesOf(address: string): Buffer {
  if (!address.includes(":")) return Buffer.from(address.split(".").map(Number));
  return Buffer.from(
    address.split(":").flatMap((group) => [Number.parseInt(group, 16) >> 8, Number.parseInt(group, 16)]),
  );
}
