import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HeaderEnd } from "./header-end.ts";

for (const [what, header, rest] of [
  ["a request and the next one", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"],
  ["a request of one line", "GET / HTTP/1.1\r\n\r\n", "x"],
  ["bare line feeds", "GET / HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\n\n"],
  ["a line feed, then CR LF", "GET / HTTP/1.1\n\r\n", "more"],
  ["empty lines in front", "\r\n\r\n\nGET / HTTP/1.1\r\n\r\n", "more"],
  ["nothing behind it", "CONNECT a:1 HTTP/1.1\r\n\r\n", ""],
] as const) {
  test(`${what}: the header ends with the first empty line behind a request, in one piece or in bytes`, () => {
    const bytes = Buffer.from(header + rest);
    const whole = new HeaderEnd();
    assert.equal(whole.push(bytes), header.length);
    assert.equal(whole.hasEnded, true);
    const split = new HeaderEnd();
    let used = 0;
    for (const byte of bytes) {
      if (split.hasEnded) break;
      used += split.push(Buffer.from([byte]));
    }
    assert.deepEqual([used, split.hasEnded], [header.length, true]);
  });
}

test("the end is the same however the bytes are cut into pieces", () => {
  const line = fc.constantFrom("GET / HTTP/1.1", "Host: x", "", "\r", "a\rb");
  const text = fc.array(fc.tuple(line, fc.constantFrom("\r\n", "\n")), { maxLength: 12 });
  fc.assert(
    fc.property(text, fc.array(fc.nat(60), { maxLength: 5 }), (lines, cuts) => {
      const bytes = Buffer.from(lines.flat().join(""));
      const whole = new HeaderEnd();
      const expected = whole.push(bytes);
      const split = new HeaderEnd();
      let used = 0;
      const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
      for (const [index, from] of [0, ...places].entries()) {
        if (split.hasEnded) break;
        used += split.push(bytes.subarray(from, places[index] ?? bytes.length));
      }
      assert.deepEqual([used, split.hasEnded], [expected, whole.hasEnded]);
    }),
  );
});
