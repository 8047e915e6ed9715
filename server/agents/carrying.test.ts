import assert from "node:assert/strict";
import { test } from "node:test";
import { foreignLink, requestBytes } from "./carrying.ts";

test("a foreign link is one id of another server, and nothing that only looks like it", () => {
  const table: [rawHeaders: string[], owner: string | undefined][] = [
    [["Culvert-Link", "srv-b/0b6e"], "srv-b"],
    [["host", "x", "CULVERT-LINK", "a.b_c:1-2/0b6e-7f"], "a.b_c:1-2"],
    [["Culvert-Link", "srv-a/0b6e"], undefined],
    [["Culvert-Link", "srv-b/0b6e", "culvert-link", "srv-b/0b6e"], undefined],
    [["Culvert-Link", ""], undefined],
    [["Culvert-Link", "srv-b"], undefined],
    [["Culvert-Link", "srv-b/"], undefined],
    [["Culvert-Link", "/0b6e"], undefined],
    [["Culvert-Link", "srv-b/0b6e/1"], undefined],
    [["Culvert-Link", "srv b/0b6e"], undefined],
    [["Culvert-Link", "srv-b/>.*"], undefined],
    [["Culvert-Link", `${"b".repeat(129)}/1`], undefined],
    [["Culvert-Link", `srv-b/${"1".repeat(65)}`], undefined],
    [["X-Link", "srv-b/0b6e"], undefined],
    [[], undefined],
  ];
  for (const [rawHeaders, owner] of table) {
    assert.equal(foreignLink(rawHeaders, "srv-a")?.owner, owner, rawHeaders.join());
  }
});

test("a request is sent on as it was received: names, order, repeated headers, and bytes beyond ASCII", () => {
  const rawHeaders = ["hOST", "x", "X-A", "1", "x-a", "2", "X-Name", "caf\u00e9", "X-None", ""];
  assert.equal(
    requestBytes({ url: "/culvert/v1/tunnel?a=b", rawHeaders }).toString("latin1"),
    "GET /culvert/v1/tunnel?a=b HTTP/1.1\r\nhOST: x\r\nX-A: 1\r\nx-a: 2\r\nX-Name: caf\u00e9\r\nX-None: \r\n\r\n",
  );
});
