import assert from "node:assert/strict";
import { isIPv6 } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { CulvertError, printable } from "../outcomes.ts";
import { formatTarget, parseTarget } from "./target.ts";

const LEGAL: [string, string, number][] = [
  ["10.0.0.1:10250", "10.0.0.1", 10250],
  ["[::1]:443", "::1", 443],
  ["[fd00:10:96::a]:1", "fd00:10:96::a", 1],
  ["[::ffff:10.0.0.1]:443", "::ffff:10.0.0.1", 443],
  ["metrics.kube-system.svc:443", "metrics.kube-system.svc", 443],
  ["node-1:65535", "node-1", 65535],
  ["a.b.example.:80", "a.b.example.", 80],
  ["_srv._tcp.example:80", "_srv._tcp.example", 80],
  ["Web:80", "Web", 80],
  ["1and1.example:80", "1and1.example", 80],
  [`${"a".repeat(63)}.b:1`, `${"a".repeat(63)}.b`, 1],
];

for (const [text, host, port] of LEGAL) {
  test(`"${text.slice(0, 40)}" is a target`, () => assert.deepEqual(parseTarget(text), { host, port }));
}

const REFUSED: [string | undefined, RegExp][] = [
  [undefined, /names no target: write host:port/],
  ["", /names no target/],
  ["10.0.0.1", /has no port/],
  ["10.0.0.1:", /has no port/],
  ["[::1]", /has no port/],
  ["[::1]:", /has no port/],
  [":443", /has no host/],
  ["host:0", /port 0 .* cannot be dialled/],
  ["host:00", /port 0/],
  ["host:00080", /begins with 0/],
  ["[::1]:0443", /begins with 0/],
  ["host:65536", /not a number from 1 to 65535/],
  ["host:123456", /not a number from 1 to 65535/],
  ["host:-1", /not a number/],
  ["host:+1", /not a number/],
  ["host:http", /not a number/],
  ["host:4_3", /not a number/],
  ["root:secret@10.0.0.1:443", /user information/],
  ["http://10.0.0.1:443", /URL or a path/],
  ["10.0.0.1:443/path", /URL or a path/],
  ["/run/x.sock:1", /URL or a path/],
  ["host?x:1", /URL or a path/],
  ["host\\x:1", /URL or a path/],
  ["ho st:1", /space, a control byte/],
  ["host\r\n:1", /control byte/],
  ["host\0:1", /control byte/],
  ["höst:1", /outside ASCII/],
  ["::1:443", /in brackets/],
  ["fe80::1:443", /in brackets/],
  ["[fe80::1%eth0]:443", /zone/],
  ["[10.0.0.1]:443", /brackets are for those only/],
  ["[web]:443", /brackets are for those only/],
  ["[]:443", /brackets are for those only/],
  ["[::1:443", /has no port/],
  ["::1]:443", /has no port/],
  ["a..b:1", /neither an IP address nor a legal host name/],
  [".:1", /neither/],
  ["-a:1", /neither/],
  ["a-:1", /neither/],
  ["*.svc:1", /neither/],
  ["$(id):1", /neither/],
  [`${"a".repeat(64)}:1`, /neither/],
  ["127.1:80", /looks like an IPv4 address/],
  ["2130706433:80", /looks like an IPv4 address/],
  ["0x7f.0.0.0x1:80", /looks like an IPv4 address/],
  ["0X7F000001:80", /looks like an IPv4 address/],
  ["010.0.0.1:80", /looks like an IPv4 address/],
  ["1.2.3.256:80", /looks like an IPv4 address/],
  ["1.2.3.4.:80", /looks like an IPv4 address/],
  [`${"a.".repeat(127)}a:1`, /255/],
];

for (const [text, sentence] of REFUSED) {
  test(`${JSON.stringify(text)?.slice(0, 40)} is refused with a sentence that names the cure`, () => {
    assert.throws(
      () => parseTarget(text),
      (error) => error instanceof CulvertError && error.code === "bad_target" && sentence.test(error.message),
    );
  });
}

test("a secret in the user information is not repeated", () => {
  assert.throws(
    () => parseTarget("admin:hunter2@10.0.0.1:443"),
    (error) => error instanceof Error && !error.message.includes("hunter2"),
  );
});

test("any text is either a target that survives a round trip, or a bad_target fit for a status line", () => {
  const pieces = fc.constantFrom(
    "a",
    "10",
    ".",
    ":",
    "[",
    "]",
    "::",
    "443",
    "0",
    "-",
    "_",
    "@",
    "/",
    "%",
    " ",
    "\r",
    "ÿ",
  );
  const text = fc.oneof(
    fc.string({ maxLength: 300 }),
    fc.array(pieces, { maxLength: 12 }).map((part) => part.join("")),
  );
  fc.assert(
    fc.property(text, (authority) => {
      try {
        const target = parseTarget(authority);
        assert.ok(target.port >= 1 && target.port <= 65535);
        assert.ok(!/[^A-Za-z0-9_.:-]/.test(target.host));
        assert.deepEqual(parseTarget(formatTarget(target)), target);
      } catch (error) {
        assert.ok(error instanceof CulvertError, String(error));
        assert.equal(error.code, "bad_target");
        assert.equal(error.message, printable(error.message, 250));
      }
    }),
    { numRuns: process.env["CI"] === "true" ? 2_000 : 200 },
  );
});

test("every address and legal port is a target", () => {
  const port = fc.integer({ min: 1, max: 65535 });
  fc.assert(
    fc.property(
      fc.oneof(
        fc.ipV4(),
        fc.ipV6(),
        fc.domain().filter((name) => name.length < 240),
      ),
      port,
      (host, port) => {
        assert.deepEqual(parseTarget(formatTarget({ host, port })), { host, port });
        assert.equal(isIPv6(host), formatTarget({ host, port }).startsWith("["));
      },
    ),
  );
});
