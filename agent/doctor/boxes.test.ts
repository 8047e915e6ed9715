import assert from "node:assert/strict";
import { test } from "node:test";
import { boxesIn } from "./boxes.ts";

test("boxes are named by what they write into an answer; without any there is nothing to say", () => {
  assert.equal(boxesIn({ server: "nginx", via: "1.1 proxy" }), ', server "nginx", via "1.1 proxy"');
  assert.equal(boxesIn({ via: "1.1 one, 1.1 two" }), ', via "1.1 one, 1.1 two"');
  assert.equal(boxesIn({ upgrade: "websocket" }), "");
  assert.equal(boxesIn({ server: "\u001b\u0007 " }), "");
});

test("what boxes write is one line of bounded length, each name apart", () => {
  const named = boxesIn({ server: "s".repeat(5_000), via: "1.1 a\u001b[31m\r\nb\u00e9" });
  assert.equal(named, `, server "${"s".repeat(57)}...", via "1.1 a [31m b"`);
  const several = { server: ["one", "two"] } as unknown as { readonly server: string };
  assert.equal(boxesIn(several), ', server "one,two"');
});

test("a box that revealsSecret our token is not quoted", () => {
  const named = boxesIn({ server: "nginx", via: "asked with Bearer abcdefghijkl.mnop" }, "abcdefghijkl.mnop");
  assert.equal(named, ', server "nginx", via "(not shown: it revealsSecret our token)"');
});
