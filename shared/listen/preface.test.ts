import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  encodeProxyV2,
  MAX_V2_CONTENT,
  type Preface,
  type PrefaceOptions,
  PrefaceReader,
  readProxyHeader,
} from "./preface.ts";
import { helloFor } from "./testing/client-hello.ts";
import { encodeProxyV1 } from "./testing/proxy-v1.ts";

const SOURCE = { address: "192.0.2.7", port: 40_000 };
const CONNECTION = { source: SOURCE, destination: { address: "198.51.100.1", port: 443 } };
const HEADERS = { "version 1": encodeProxyV1(CONNECTION), "version 2": encodeProxyV2(CONNECTION) };
const HELLO = helloFor("blue.example");

/** The preface that the reader finds in these bytes, given in one piece or in several. */
function read(options: PrefaceOptions, ...chunks: Buffer[]): Preface | undefined {
  const reader = new PrefaceReader(options);
  for (const chunk of chunks) {
    const result = reader.push(chunk);
    if (result !== undefined) return result;
  }
  return undefined;
}

for (const [version, header] of Object.entries(HEADERS)) {
  test(`a header of ${version} tells who is behind the balancer, and only it is consumed`, () => {
    const result = read({ proxyHeader: "required", name: true }, Buffer.concat([header, HELLO]));
    const headerLength = header.length;
    const hello = { problem: undefined, serverName: "blue.example" };
    assert.deepEqual(result, { headerLength, source: SOURCE, hello });
    const unnamed = read({ proxyHeader: "optional", name: false }, Buffer.concat([header, HELLO]));
    assert.deepEqual(unnamed, { headerLength, source: SOURCE, hello: undefined });
  });

  test(`a header of ${version} from an address that is not trusted is refused before TLS`, () => {
    const found = read({ proxyHeader: "forbidden", name: true }, Buffer.concat([header, HELLO]));
    assert.deepEqual([found?.problem !== undefined, found?.problem !== undefined && found.beforeTls], [true, true]);
  });

  test(`a header of ${version} is no ClientHello where headers are not looked for`, () => {
    const found = read({ proxyHeader: "ignored", name: true }, Buffer.concat([header, HELLO]));
    assert.match(found?.problem ?? "", /does not begin as TLS/);
  });
}

test("without a header a client is itself, unless one is required", () => {
  for (const proxyHeader of ["ignored", "forbidden", "optional"] as const) {
    const result = read({ proxyHeader, name: true }, HELLO);
    assert.deepEqual(result, {
      ...{ headerLength: 0, source: undefined },
      hello: { problem: undefined, serverName: "blue.example" },
    });
  }
  assert.match(read({ proxyHeader: "required", name: true }, HELLO)?.problem ?? "", /one is required/);
});

test("a balancer's health check (LOCAL) is read, and says nothing of a source", () => {
  const found = read({ proxyHeader: "required", name: true }, encodeProxyV2(undefined), HELLO);
  assert.deepEqual(found, {
    ...{ headerLength: 16, source: undefined },
    hello: { problem: undefined, serverName: "blue.example" },
  });
});

test("however header and ClientHello are cut, the answer is the same", () => {
  const property = fc.property(
    fc.constantFrom(...Object.values(HEADERS), Buffer.alloc(0)),
    fc.array(fc.integer({ min: 1, max: 600 }), { maxLength: 20 }),
    (header, cuts) => {
      const bytes = Buffer.concat([header, HELLO]);
      const places = [...new Set(cuts.filter((cut) => cut < bytes.length))].sort((one, other) => one - other);
      const chunks = [0, ...places].map((from, index) => bytes.subarray(from, places[index] ?? bytes.length));
      const options = { proxyHeader: "optional", name: true } as const;
      assert.deepEqual(read(options, ...chunks), read(options, bytes));
    },
  );
  fc.assert(property);
});

const V2 = "0d0a0d0a000d0a515549540a";

const port = fc.nat(65_535);
const connections = fc.oneof(
  fc.record({
    source: fc.record({ address: fc.ipV4(), port }),
    destination: fc.record({ address: fc.ipV4(), port }),
  }),
  fc.record({
    source: fc.record({ address: fc.ipV6(), port }),
    destination: fc.record({ address: fc.ipV6(), port }),
  }),
);

function line(text: string) {
  return readProxyHeader(Buffer.from(text, "latin1"));
}

function hex(text: string) {
  return readProxyHeader(Buffer.from(text.replaceAll(" ", ""), "hex"));
}

test("the examples of the specification are read", () => {
  assert.deepEqual(line("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET / HTTP/1.1\r\n"), {
    state: "read",
    connection: {
      source: { address: "192.168.0.1", port: 56_324 },
      destination: { address: "192.168.0.11", port: 443 },
    },
    bytesUsed: 47,
  });
  assert.deepEqual(line("PROXY TCP6 2001:DB8:0::1 ::ffff:10.0.0.1 1 65535\r\n"), {
    state: "read",
    connection: { source: { address: "2001:db8::1", port: 1 }, destination: { address: "10.0.0.1", port: 65_535 } },
    bytesUsed: 50,
  });
  // haproxy: TCP over IPv4 with a TLV behind.
  assert.deepEqual(hex(`${V2} 21 11 000f c0a80001 c0a8000b dc04 01bb 040000 16`), {
    state: "read",
    connection: {
      source: { address: "192.168.0.1", port: 56_324 },
      destination: { address: "192.168.0.11", port: 443 },
    },
    bytesUsed: 31,
  });
});

test("a balancer that speaks for itself, or does not know, names no connection", () => {
  const longest = `PROXY UNKNOWN ${"f".repeat(91)}\r\n`;
  for (const [reading, bytesUsed] of [
    [line("PROXY UNKNOWN\r\n"), 15],
    [line("PROXY UNKNOWN ffff:f...f 65535 65535\r\n"), 38],
    [line(longest), 107],
    [hex(`${V2} 20 00 0000`), 16],
    [hex(`${V2} 20 11 000c 00000000 00000000 0000 0000`), 28],
    [hex(`${V2} 21 00 0003 010203`), 19],
  ] as const) {
    assert.deepEqual(reading, { state: "read", connection: undefined, bytesUsed });
  }
});

test("what cannot be used is refused, each in its own words", () => {
  for (const [reading, problem] of [
    [line("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n"), /does not end with CR and LF/],
    [line(`PROXY UNKNOWN ${"f".repeat(92)}\r\n`), /longer than 107 bytes/],
    [line(`PROXY ${"x".repeat(101)}`), /longer than 107 bytes/],
    [line("PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n"), /names no family/],
    [line("PROXY \r\n"), /names no family/],
    [line("PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n"), /addresses/],
    [line("PROXY TCP4 ::1 ::1 1 2\r\n"), /addresses/],
    [line("PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n"), /addresses/],
    [line("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n"), /addresses/],
    [line("PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n"), /addresses/],
    [line("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n"), /addresses/],
    [line("PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n"), /ports/],
    [line("PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n"), /ports/],
    [line("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n"), /ports/],
    [hex(`${V2} 31 11 000c`), /version 3/],
    [hex(`${V2} 22 11 000c`), /command 2/],
    [hex(`${V2} 21 13 000c`), /family 0x13 is not known/],
    [hex(`${V2} 21 01 0000`), /family 0x1 is not known/],
    [hex(`${V2} 21 41 00d8`), /family 0x41 is not known/],
    [hex(`${V2} 21 12 000b`), /too short/],
    [hex(`${V2} 21 22 0023`), /too short/],
    [hex(`${V2} 21 31 00d7`), /too short/],
    [hex(`${V2} 21 32 0000`), /too short/],
    [hex(`${V2} 21 11 000b`), /too short/],
    [hex(`${V2} 21 21 000c`), /too short/],
    [hex(`${V2} 21 11 ffff`), /65535 bytes long/],
    [hex(`${V2} 20 00 0801`), /2049 bytes long/],
  ] as const) {
    assert.equal(reading.state, "refused");
    assert.match(reading.state === "refused" ? reading.problem : "", problem);
  }
});

test("a client that came to the balancer by UDP or through a unix socket counts as the connection's own address", () => {
  for (const [family, length] of [
    [0x12, 12],
    [0x22, 36],
    [0x31, 216],
    [0x32, 216],
  ] as const) {
    for (const tlvs of [0, 7]) {
      const header = Buffer.alloc(16 + length + tlvs, 1);
      Buffer.from(V2.replaceAll(" ", ""), "hex").copy(header);
      header[12] = 0x21;
      header[13] = family;
      header.writeUInt16BE(length + tlvs, 14);
      assert.deepEqual(readProxyHeader(header.subarray(0, -1)), { state: "more" });
      const result = read({ proxyHeader: "required", name: true }, Buffer.concat([header, HELLO]));
      const hello = { problem: undefined, serverName: "blue.example" };
      assert.deepEqual(result, { headerLength: header.length, source: undefined, hello });
    }
  }
});

test("TLS and HTTP are no headers, and that is known with the first byte that differs", () => {
  for (const text of ["\x16", "GET", "PROXIED", "\r\n\r\n\0\r\nQUIC", "\r\r"]) {
    assert.deepEqual(line(text), { state: "absent" }, JSON.stringify(text));
  }
  for (const text of ["", "P", "PROXY", "PROXY ", "PROXY TCP4 1.2.3.4\r", "\r", "\r\n\r\n\0\r\nQUIT\n!\x11\0"]) {
    assert.deepEqual(line(text), { state: "more" }, JSON.stringify(text));
  }
});

test("what is encoded is read again, with whatever follows, and none before its last byte", () => {
  fc.assert(
    fc.property(connections, fc.constantFrom(encodeProxyV1, encodeProxyV2), fc.uint8Array(), (from, encode, rest) => {
      const header = encode(from);
      for (let length = 0; length < header.length; length++) {
        assert.deepEqual(readProxyHeader(header.subarray(0, length)), { state: "more" });
      }
      const reading = readProxyHeader(Buffer.concat([header, rest]));
      assert.ok(reading.state === "read" && reading.connection !== undefined);
      assert.equal(reading.bytesUsed, header.length);
      // Spelling may differ, so by what the other encoder makes of both.
      const other = encode === encodeProxyV1 ? encodeProxyV2 : encodeProxyV1;
      assert.deepEqual(other(reading.connection), other(from));
      assert.deepEqual(encode(reading.connection), header);
    }),
  );
  for (const encode of [encodeProxyV1, encodeProxyV2]) {
    const header = encode(undefined);
    assert.deepEqual(readProxyHeader(header), { state: "read", connection: undefined, bytesUsed: header.length });
  }
});

test("addresses are encoded as sockets tell them: mapped, with a zone, or of both families", () => {
  const ends = (source: string, destination: string) => ({
    source: { address: source, port: 1 },
    destination: { address: destination, port: 2 },
  });
  for (const [source, destination, expected] of [
    ["::ffff:10.0.0.1", "::ffff:10.0.0.2", ["10.0.0.1", "10.0.0.2"]],
    ["fe80::1%eth0", "fe80::2%eth0", ["fe80::1", "fe80::2"]],
    ["10.0.0.1", "2001:db8::2", ["10.0.0.1", "2001:db8::2"]],
  ] as const) {
    for (const encode of [encodeProxyV1, encodeProxyV2]) {
      const reading = readProxyHeader(encode(ends(source, destination)));
      assert.deepEqual(reading.state === "read" && reading.connection, ends(expected[0], expected[1]));
    }
  }
});

test("no bytes make it throw, and none is read beyond what is there", () => {
  const random = fc.uint8Array({ maxLength: 80 });
  const prefixes = ["", "PROXY ", "PROXY TCP4 ", `${Buffer.from(V2, "hex").toString("latin1")}\x21`];
  fc.assert(
    fc.property(fc.constantFrom(...prefixes), random, (prefix, rest) => {
      const bytes = Buffer.concat([Buffer.from(prefix, "latin1"), rest]);
      const reading = readProxyHeader(bytes);
      if (reading.state === "read") assert.ok(reading.bytesUsed <= bytes.length);
      if (reading.state === "more") assert.ok(bytes.length < 16 + MAX_V2_CONTENT);
    }),
    { numRuns: 1_000 },
  );
});
