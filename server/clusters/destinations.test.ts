import assert from "node:assert/strict";
import { test } from "node:test";
import { parseTarget } from "../../shared/address/target.ts";
import { addressRefusal, Destinations } from "./destinations.ts";

const LISTED = new Destinations(["kas.blue.svc:6443", "10.0.0.1:6443", "[2001:db8::1]:443"]);

test("a destination is a host and a port of the list, however it is spelt", () => {
  for (const text of ["kas.blue.svc:6443", "KAS.blue.svc.:6443", "10.0.0.1:6443", "[::ffff:10.0.0.1]:6443"]) {
    assert.equal(LISTED.objection(parseTarget(text)), undefined, text);
  }
  assert.equal(LISTED.objection(parseTarget("[2001:DB8:0::1]:443")), undefined);
});

test("nothing else is one: no other port, no name below, no address behind a name, and nothing without a list", () => {
  for (const text of ["kas.blue.svc:443", "a.kas.blue.svc:6443", "10.0.0.2:6443", "169.254.169.254:80"]) {
    assert.match(LISTED.objection(parseTarget(text)) ?? "", /is not among the allowed destinations/, text);
  }
  assert.match(new Destinations([]).objection(parseTarget("10.0.0.1:6443")) ?? "", /not among/);
});

test("a list with something else than host:port is refused", () => {
  for (const text of ["kas", "10.0.0.0/8:443", "*.svc:443", "https://kas:443", "kas:0"]) {
    assert.throws(() => new Destinations([text]), { name: "CulvertError" }, text);
  }
});

test("a listed name leads neither to loopback nor to metadata, and a listed address does", () => {
  const refusal = (listed: string, address: string) => addressRefusal(parseTarget(listed), address, []);
  assert.match(refusal("kas:80", "169.254.169.254") ?? "", /link-local address: list the address itself/);
  assert.match(refusal("kas:80", "64:ff9b::a9fe:a9fe") ?? "", /link-local/);
  assert.match(refusal("kas:80", "127.0.0.1") ?? "", /loopback/);
  assert.match(refusal("kas:80", "100.100.100.200") ?? "", /cloud-metadata/);
  assert.equal(refusal("kas:80", "10.0.0.1"), undefined);
  assert.equal(refusal("localhost:80", "127.0.0.1"), undefined);
  assert.equal(refusal("127.0.0.1:80", "127.0.0.1"), undefined);
  assert.equal(refusal("169.254.169.254:80", "169.254.169.254"), undefined);
});

test("a port of the server itself is never dialled, also where its address is listed", () => {
  const own = [{ address: "::", port: 8091 }];
  assert.match(addressRefusal(parseTarget("127.0.0.1:8091"), "127.0.0.1", own) ?? "", /port of this server/);
  assert.match(addressRefusal(parseTarget("kas:8091"), "::1", own) ?? "", /port of this server/);
  assert.equal(addressRefusal(parseTarget("127.0.0.1:8092"), "127.0.0.1", own), undefined);
});
