import assert from "node:assert/strict";
import { formatTarget, parseTarget } from "../../shared/address/target.ts";
import { Socks5Reader, type Socks5Step } from "../../sidecars/socks5-reader.ts";
import { assertPrintable, splits, type Target } from "../target.ts";

const GREETING = Buffer.of(5, 1, 0);
const LOGIN = Buffer.from("\x01\x05alice\x06secret");
const IPV4 = Buffer.of(5, 1, 0, 1, 10, 0, 0, 1, 1, 187);
const NAME = Buffer.from("\x05\x01\0\x03\x07a.exampl\x01\xbb", "latin1");

/** The bytes of a SOCKS 5 client before its data. The first byte says whether a password is wanted. */
export const socks5Requests: Target = {
  name: "socks5-requests",
  maxLength: 1_024,
  seeds: [
    Buffer.concat([Buffer.of(0), GREETING, IPV4]),
    Buffer.concat([Buffer.of(0), GREETING, NAME, Buffer.from("data")]),
    Buffer.concat([Buffer.of(1, 5, 2, 0, 2), LOGIN, IPV4]),
  ],
  words: [GREETING, LOGIN, IPV4, NAME, Buffer.of(5, 1, 0, 4)],
  // A message has at most 515 bytes, which are copied with each piece.
  bounds: { allocation: { fixed: 256 * 1024, perByte: 64 } },
  run(input) {
    const verify = (input[0] ?? 0) % 2 === 0 ? undefined : (user: Buffer) => user.toString() === "alice";
    const [together, apart] = splits(input.subarray(1));
    const read = (pieces: readonly Buffer[]): Socks5Step[] => {
      const reader = new Socks5Reader(verify);
      return pieces.flatMap((piece) => reader.push(piece));
    };
    const steps = read(together);
    assert.deepEqual(
      read(apart).map(({ kind }) => kind),
      steps.map(({ kind }) => kind),
    );
    const last = steps.at(-1);
    if (last?.kind === "request") assert.deepEqual(parseTarget(formatTarget(last.target)), last.target);
    if (last?.kind === "refuse") assertPrintable(last.reason, 400);
    return steps.map((step) => (step.kind === "refuse" ? `refuse ${step.bytes.join()}` : step.kind)).join();
  },
};
