import assert from "node:assert/strict";
import { isIP } from "node:net";
import { parsePacResult } from "../../shared/dial/pac.ts";
import { type PacValue, pacFunctions } from "../../shared/dial/pac-functions.ts";
import { formatRoute } from "../../shared/dial/proxy-route.ts";
import { assertPrintable, attempt, type Target } from "../target.ts";

const FUNCTIONS = pacFunctions({
  addressesOf: (host) => (host.endsWith("test") ? ["2001:db8::1", "10.0.0.1"] : []),
  ownAddresses: () => ["10.0.0.2"],
  now: () => new Date(2026, 10, 27, 14, 5, 30),
});
/** The cost of a pattern depends on the pattern: the time of a script is bounded instead. */
const NAMES = Object.keys(FUNCTIONS).filter((name) => name !== "shExpMatch");
const ORIGIN = { from: "PAC", isUnverified: false };

/** The answer of a PAC script, and its calls of the functions of PAC: a name and values, a line for each. */
export const pac: Target = {
  name: "pac",
  maxLength: 1_024,
  seeds: [
    "PROXY a:3128; SOCKS5 [fd00::1]:1080; HTTPS user:pass@b; DIRECT",
    "isInNet\n10.1.2.3\n10.0.0.0\n255.0.0.0",
    "isInNetEx\n2001:db8::5\n2001:db8::/32",
    "sortIpAddressList\n10.2.3.9;2001:4898::28:400;::1",
    "dateRange\n1\nJUN\n2025\n15\nAUG\n2026\nGMT",
    "timeRange\n14\n5\n30\n22\n0\n0",
    "weekdayRange\nMON\nFRI\nGMT",
  ].map((text) => Buffer.from(text)),
  words: [...NAMES, "\n", "; ", "PROXY ", "DIRECT", "GMT", "SUN", "DEC", "255.255.255.255", "::ffff:1.2.3.4", "/128"],
  run(input) {
    const [name = "", ...values] = input.toString("latin1").split("\n");
    const called = NAMES.includes(name) ? FUNCTIONS[name] : undefined;
    if (called === undefined) return answered(input.toString("latin1"));
    const { value, error } = attempt(() => called(...values.map(typed)), Error);
    assert.equal(error, undefined, "no value makes a function fail");
    if (name === "sortIpAddressList" && typeof value === "string") {
      const sorted = value.split(";");
      assert.ok(sorted.every((address) => isIP(address) !== 0));
      assert.equal(called(sorted.toReversed().join(";")), value, "the order is one of the addresses alone");
    }
    return `${name} ${typeof value === "boolean" ? value : typeof value}`;
  },
};

/** Scripts give numbers, too. */
function typed(text: string): PacValue {
  return /^\d{1,4}$/.test(text) ? Number(text) : text;
}

function answered(text: string): string {
  const routes = parsePacResult(text, ORIGIN);
  if (routes === undefined) return "no routes";
  assert.ok(routes.length > 0 && routes.length <= 32);
  for (const route of routes) assertPrintable(formatRoute(route), 2_000);
  return routes
    .map(({ kind }) => kind)
    .slice(0, 3)
    .join(" ");
}
