import assert from "node:assert/strict";
import { isIPv4, isIPv6 } from "node:net";
import { encodeProxyV2, PrefaceReader, type ProxyReading, readProxyHeader } from "../../shared/listen/preface.ts";
import { helloFor } from "../../shared/listen/testing/client-hello.ts";
import { encodeProxyV1 } from "../../shared/listen/testing/proxy-v1.ts";
import { assertPrintable, splits, type Target } from "../target.ts";

const V4 = { source: { address: "10.0.0.7", port: 1 }, destination: { address: "10.0.0.8", port: 65_535 } };
const V6 = { source: { address: "fd00::7", port: 80 }, destination: { address: "2001:db8::1", port: 443 } };
/** Version 2 is decided earlier, but for the bytes that nobody reads. */
const MAX_V1 = 107;
const RULES = ["ignored", "forbidden", "optional", "required"] as const;

/** The PROXY header, versions 1 and 2, and what reads it in front of TLS. */
export const proxyHeader: Target = {
  name: "proxy-header",
  maxLength: 2_200,
  seeds: [undefined, V4, V6]
    .flatMap((connection) => [encodeProxyV1(connection), encodeProxyV2(connection)])
    .map((header) => Buffer.concat([header, helloFor("blue.example")])),
  words: ["PROXY ", "TCP4 ", "TCP6 ", "UNKNOWN", "\r\n", "::ffff:1.2.3.4", "fe80::1%eth0", encodeProxyV2(undefined)],
  run(input) {
    const reading = readProxyHeader(input);
    assertKnownAtOnce(input, reading);
    const options = { proxyHeader: RULES[input.length % 4] ?? "ignored", name: input.length % 8 < 4 };
    const [together, apart] = splits(input);
    assert.deepEqual(preface(apart, options), preface(together, options));
    if (reading.state === "refused") {
      assertPrintable(reading.problem, 200);
      return reading.problem.replace(/\d+/g, "n");
    }
    if (reading.state !== "read") return reading.state;
    const { connection, bytesUsed } = reading;
    assert.ok(bytesUsed > 0 && bytesUsed <= input.length);
    for (const { address, port } of connection === undefined ? [] : [connection.source, connection.destination]) {
      assert.ok(isIPv4(address) || (isIPv6(address) && !address.includes("%")), address);
      assert.ok(Number.isInteger(port) && port >= 0 && port <= 65_535);
    }
    for (const again of [encodeProxyV1(connection), encodeProxyV2(connection)]) {
      assert.deepEqual(readProxyHeader(again), { state: "read", connection, bytesUsed: again.length });
    }
    return connection === undefined ? "nobody" : `${isIPv4(connection.source.address)} ${input[0]}`;
  },
};

/** A result that is known from the first bytes must not change when more bytes come. */
function assertKnownAtOnce(input: Buffer, last: ProxyReading): void {
  for (let length = 0; length < input.length && length <= MAX_V1; length++) {
    const reading = readProxyHeader(input.subarray(0, length));
    if (reading.state === "more") continue;
    assert.deepEqual(last, reading);
    return;
  }
}

type Found = ReturnType<PrefaceReader["push"]>;

/** The answer, and how many bytes had come until then are no part of it: all but the header are given back. */
function preface(pieces: readonly Buffer[], options: ConstructorParameters<typeof PrefaceReader>[0]): Found {
  const reader = new PrefaceReader(options);
  let came = 0;
  for (const piece of pieces) {
    came += piece.length;
    const found = reader.push(piece);
    if (found === undefined) continue;
    if (found.problem === undefined) assert.ok(found.headerLength >= 0 && found.headerLength <= came);
    return found;
  }
  return undefined;
}
