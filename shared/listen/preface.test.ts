import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Peeked, type Preface, type PrefaceOptions, PrefaceReader } from "./preface.ts";
import { encodeProxyV2 } from "./proxy-protocol.ts";
import { helloFor } from "./testing/client-hello.ts";
import { encodeProxyV1 } from "./testing/proxy-v1.ts";

const SOURCE = { address: "192.0.2.7", port: 40_000 };
const CONNECTION = { source: SOURCE, destination: { address: "198.51.100.1", port: 443 } };
const HEADERS = { "version 1": encodeProxyV1(CONNECTION), "version 2": encodeProxyV2(CONNECTION) };
const HELLO = helloFor("blue.example");

/** What the reader makes of these bytes, given in one piece or in several. */
function read(options: PrefaceOptions, ...chunks: Buffer[]): Peeked<Preface> | undefined {
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
    assert.equal(result?.consumed, header.length);
    assert.deepEqual(result?.found, { source: SOURCE, hello: { problem: undefined, serverName: "blue.example" } });
    const unnamed = read({ proxyHeader: "optional", name: false }, Buffer.concat([header, HELLO]));
    assert.deepEqual(unnamed, { found: { source: SOURCE, hello: undefined }, consumed: header.length });
  });

  test(`a header of ${version} from an address that is not trusted is refused before TLS`, () => {
    const found = read({ proxyHeader: "forbidden", name: true }, Buffer.concat([header, HELLO]))?.found;
    assert.deepEqual([found?.problem !== undefined, found?.problem !== undefined && found.beforeTls], [true, true]);
  });

  test(`a header of ${version} is no ClientHello where headers are not looked for`, () => {
    const found = read({ proxyHeader: "ignored", name: true }, Buffer.concat([header, HELLO]))?.found;
    assert.match(found?.problem ?? "", /does not begin as TLS/);
  });
}

test("without a header a client is itself, unless one is required", () => {
  for (const proxyHeader of ["ignored", "forbidden", "optional"] as const) {
    const result = read({ proxyHeader, name: true }, HELLO);
    assert.deepEqual(result, {
      found: { source: undefined, hello: { problem: undefined, serverName: "blue.example" } },
      consumed: 0,
    });
  }
  assert.match(read({ proxyHeader: "required", name: true }, HELLO)?.found.problem ?? "", /one is required/);
});

test("a balancer's health check (LOCAL) is read, and says nothing of a source", () => {
  const found = read({ proxyHeader: "required", name: true }, encodeProxyV2(undefined), HELLO)?.found;
  assert.deepEqual(found, { source: undefined, hello: { problem: undefined, serverName: "blue.example" } });
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
