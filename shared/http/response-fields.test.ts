import assert from "node:assert/strict";
import { test } from "node:test";
import { isOurs, proxyStatus } from "./response-fields.ts";

test("an answer is ours by its first member, whoever on the way has put another behind it", () => {
  const ours = proxyStatus("destination_unavailable", "no agent, nobody; none");
  for (const field of [ours, `${ours}, nginx; received-status=503`, "culvert", "culvert , cdn", [ours, "cdn"]]) {
    assert.equal(isOurs(field), true, String(field));
  }
  for (const field of [
    undefined,
    "",
    "envoy; error=http_request_denied",
    `envoy, ${ours}`,
    "culverts; a",
    '"x culvert"',
  ]) {
    assert.equal(isOurs(field), false, String(field));
  }
});

test("a sentence is a string of the field, whatever it holds", () => {
  assert.equal(proxyStatus("dns_error", "no name"), 'culvert; error=dns_error; details="no name"');
  const hostile = 'a "b\\" \r\nSet-Cookie: c\u00e9';
  assert.equal(proxyStatus("dns_error", hostile), `culvert; error=dns_error; details="a 'b'' Set-Cookie: c"`);
  assert.match(proxyStatus("dns_error", "long ".repeat(100)), /^culvert; error=dns_error; details=".{200}"$/);
});
