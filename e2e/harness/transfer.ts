import type { Socket } from "node:net";
import { Payload, PayloadCheck } from "./payload.ts";
import { sendPayload } from "./targets/plain.ts";
import { type TcpTarget, tcpTarget } from "./targets/tcp.ts";

/** Orders of closing, always in the same tick as the last byte is written. */
export const CLOSINGS = [
  "both at once",
  "caller first, target after the caller's end",
  "target first, caller after the target's end",
  "caller ends before the target begins",
  "target ends before the caller begins",
  "caller closes wholly, nothing comes back",
  "target closes wholly, nothing was sent to it",
] as const;
export type Closing = (typeof CLOSINGS)[number];

/** Bytes both ways on one connection, known to both ends. */
export interface Transfer {
  readonly seed: number;
  readonly closing: Closing;
  readonly bytesUp: number;
  readonly bytesDown: number;
}

const HEADER_BYTES = 13;

/** The instructions for the target, which are the first bytes that the caller sends. */
export function encodeTransfer({ seed, closing, bytesUp, bytesDown }: Transfer): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(seed, 0);
  header.writeUInt8(CLOSINGS.indexOf(closing), 4);
  header.writeUInt32BE(bytesUp, 5);
  header.writeUInt32BE(bytesDown, 9);
  return header;
}

function decodeTransfer(header: Buffer): Transfer {
  return {
    seed: header.readUInt32BE(0),
    closing: CLOSINGS[header.readUInt8(4)] as Closing,
    bytesUp: header.readUInt32BE(5),
    bytesDown: header.readUInt32BE(9),
  };
}

/** Takes part in transfers as a target; `outcome(seed)` is its view of one: what arrived, or why it failed. */
export interface TransferTarget extends TcpTarget {
  outcome(seed: number): Promise<PayloadCheck>;
}

export async function transferTarget(): Promise<TransferTarget> {
  const outcomes = new Map<number, Deferred<PayloadCheck>>();
  const outcome = (seed: number): Deferred<PayloadCheck> => {
    const known = outcomes.get(seed) ?? new Deferred<PayloadCheck>();
    outcomes.set(seed, known);
    return known;
  };
  const target = await tcpTarget((socket) => {
    let header = Buffer.alloc(0);
    const onHeader = () => {
      const part: Buffer | null = socket.read();
      if (part) header = Buffer.concat([header, part]);
      if (header.length < HEADER_BYTES) return;
      socket.off("readable", onHeader);
      if (header.length > HEADER_BYTES) socket.unshift(header.subarray(HEADER_BYTES));
      const transfer = decodeTransfer(header);
      outcome(transfer.seed).follow(play(socket, "target", transfer));
    };
    socket.on("readable", onHeader);
    // A CONNECT that was given up, for example because it was tried on another agent.
    socket.on("end", () => header.length < HEADER_BYTES && socket.end());
  });
  return Object.assign(target, { outcome: (seed: number) => outcome(seed).promise });
}

class Deferred<T> {
  follow: (value: Promise<T>) => void = () => {};
  readonly promise = new Promise<T>((resolve) => {
    this.follow = resolve;
  });

  constructor() {
    this.promise.catch(() => {}); // seen by whoever asks for the outcome
  }
}

/**
 * One end of a transfer: sends its bytes, closes by the rule, resolves with what arrived when the socket has closed.
 */
export function play(socket: Socket, end: "caller" | "target", transfer: Transfer): Promise<PayloadCheck> {
  const { seed, closing } = transfer;
  const [sent, awaited] =
    end === "caller" ? [transfer.bytesUp, transfer.bytesDown] : [transfer.bytesDown, transfer.bytesUp];
  // The two directions of a connection are different bytes.
  const payload = new Payload(2 * seed + (end === "caller" ? 0 : 1));
  const check = new PayloadCheck(2 * seed + (end === "caller" ? 1 : 0));
  const what = `${end} of transfer ${seed} (${closing}, ${transfer.bytesUp} up, ${transfer.bytesDown} down)`;
  return new Promise((resolve, reject) => {
    let ended = false;
    let written = false;
    const rule = ruleOf(end, closing);
    const endIfDue = () => {
      if (written && (ended || rule.endsUnasked)) socket.end();
    };
    const begin = () =>
      sendPayload(socket, payload, sent, () => {
        written = true;
        if (rule.closesWholly) socket.destroySoon();
        else endIfDue();
      });
    socket.on("data", (chunk: Buffer) => check.take(chunk));
    socket.on("end", () => {
      ended = true;
      if (rule.waitsForEnd) begin();
      else endIfDue();
    });
    socket.on("error", (error) => reject(new Error(`${what}: ${error.message}`, { cause: error })));
    socket.on("close", () => {
      try {
        if (!ended && !rule.closesWholly) throw new Error(`${what}: closed without an end`);
        check.expect(awaited, what);
        resolve(check);
      } catch (error) {
        reject(error);
      }
    });
    if (!rule.waitsForEnd) begin();
    socket.resume();
  });
}

interface Rule {
  /** Sends nothing before the other's end. */
  readonly waitsForEnd: boolean;
  /** Ends with its last byte, without waiting for the other's end. */
  readonly endsUnasked: boolean;
  /** Closes both directions with its last byte. */
  readonly closesWholly: boolean;
}

function ruleOf(end: "caller" | "target", closing: Closing): Rule {
  const other = end === "caller" ? "target" : "caller";
  return {
    waitsForEnd: closing.startsWith(`${other} ends before`),
    // An end that closes wholly must have nothing unread: TCP would send a reset (RFC 1122 §4.2.2.13).
    endsUnasked: !closing.startsWith(`${other} first`) && !closing.startsWith(`${other} closes wholly`),
    closesWholly: closing.startsWith(`${end} closes wholly`),
  };
}
