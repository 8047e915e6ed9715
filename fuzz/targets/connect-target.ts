import assert from "node:assert/strict";
import { isIP } from "node:net";
import { formatTarget, parseTarget, shownAuthority } from "../../shared/address/target.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { assertPrintable, attempt, type Target } from "../target.ts";

const SECRET = "s3cr3t-p4ss";

/** The authority of a CONNECT. */
export const connectTarget: Target = {
  name: "connect-target",
  maxLength: 300,
  seeds: ["10.0.0.1:10250", "[fd00::1]:443", "node-1.example.:80", "_srv.a-b.c:65535", "[::ffff:1.2.3.4]:1"].map(
    (text) => Buffer.from(text),
  ),
  words: [":", "[", "]", "::", ".", "@", "%", "0x7f", "127.1", ":443", "fe80::1%eth0", "xn--", "http://", "?", "\\"],
  run(input) {
    const text = input.toString("latin1");
    assertPrintable(shownAuthority(text, 80), 80);
    const withUser = attempt(() => parseTarget(`user:${SECRET}@${text}`), CulvertError);
    assert.equal(withUser.error?.code, "bad_target");
    assert.ok(!withUser.error.message.includes(SECRET), "what stands before an @ is not shown");
    const { value: target, error } = attempt(() => parseTarget(text), CulvertError);
    if (error !== undefined) {
      assert.equal(error.code, "bad_target");
      assertPrintable(error.message, 300);
      return error.message.replace(/".*"/s, "…").replace(/\d+/g, "n");
    }
    const { host, port } = target;
    assert.ok(port >= 1 && port <= 65_535);
    assert.equal(formatTarget(target), text);
    assert.deepEqual(parseTarget(formatTarget(target)), target);
    // A label that claims to be Punycode is for the resolver to look at; URLs refuse it where it decodes to nothing.
    if (!/(?:^|\.)xn--/i.test(host)) assertSameHost(host, new URL(`http://${formatTarget(target)}/`).hostname);
    return isIP(host) === 0 ? "name" : `IPv${isIP(host)}`;
  },
};

/** A reader of the same text by the WHATWG URL Standard has to find the same host. */
function assertSameHost(host: string, hostname: string): void {
  if (isIP(host) === 6) assert.equal(isIP(hostname.slice(1, -1)), 6);
  else assert.equal(hostname, host.toLowerCase());
}
