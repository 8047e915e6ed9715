import assert from "node:assert/strict";
import { test } from "node:test";
import { faultIn, isOurs, proxyStatus } from "./response-fields.ts";

test("an answer is ours by its first member, whatever other proxies have appended", () => {
  const ours = proxyStatus({ error: "destination_unavailable" }, "no agent, nobody; none");
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
  assert.equal(proxyStatus({ error: "dns_error" }, "no name"), 'culvert; error=dns_error; details="no name"');
  const hostile = 'a "b\\" \r\nSet-Cookie: c\u00e9';
  assert.equal(
    proxyStatus({ error: "dns_error" }, hostile),
    `culvert; error=dns_error; details="a 'b'' Set-Cookie: c"`,
  );
  assert.match(
    proxyStatus({ error: "dns_error" }, "long ".repeat(100)),
    /^culvert; error=dns_error; details=".{200}"$/,
  );
});

test("the fault of a credential and who refused a CONNECT are words of their own, which no sentence can imitate", () => {
  const missing = proxyStatus({ error: "http_request_denied", fault: "certificate_missing" }, "none was sent");
  assert.equal(missing, 'culvert; error=http_request_denied; fault=certificate_missing; details="none was sent"');
  assert.equal(faultIn(`${missing}, proxy.corp; fault=token_expired`), "certificate_missing");
  const byAgent = proxyStatus({ error: "http_request_denied", refusedBy: "agent" }, 'no"; fault=token_expired');
  assert.match(byAgent, /^culvert; error=http_request_denied; refused-by=agent; details="/);
  for (const field of [byAgent, "proxy.corp; fault=token_expired", "culvert; fault=later_word", undefined]) {
    assert.equal(faultIn(field), undefined, String(field));
  }
});
