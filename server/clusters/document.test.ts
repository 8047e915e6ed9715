import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { validate } from "../../shared/documents/schema.ts";
import { yamlDocuments } from "../../shared/documents/yaml.ts";
import { type ClusterDocument, clusterDocument } from "./document.ts";

/** The words of zod's own messages. */
const ZODS_OWN = /invalid input|expected|received|unrecognized|too (?:small|big)/i;

function parse(text: string): ClusterDocument | string[] {
  const [first] = yamlDocuments(text);
  if (first?.value === undefined) return [first?.fault ?? "nothing"];
  const parsed = validate(clusterDocument, first.value);
  return parsed.faults === undefined ? parsed.value : [...parsed.faults];
}

function parsed(text: string): ClusterDocument {
  const document = parse(text);
  assert.ok(!Array.isArray(document), String(document));
  return document;
}

test("a document with everything in it", () => {
  const document = parsed(`
name: blue-1
agents:
  sni: [Blue.Agents.example., "*.blue.example", blue.agents.example]
  cert: pki/a.crt
  key: pki/a.key
  ca: pki/ca.crt
  identities: ["O=agents,CN=*"]
  token:
    tokenReview: {audience: culvert, agentNamespace: kube-system, agentServiceAccount: "culvert-*"}
  sourceCIDRs: [10.0.0.0/8]
  maxAgents: 3
  innerTls: auto
callers:
  sni: [blue.callers.example]
  uds: blue.sock
  token:
    jwt:
      issuer: https://issuer.example
      audience: culvert
      algorithms: [ES256]
      jwks: https://issuer.example/keys
      jwksCa: pki/issuer.crt
      subjects: ["system:serviceaccount:*:callers"]
allow: ["10.0.0.0/8:443-10250", "*.svc"]
deny:
- 10.9.0.0/16
limits: {streams: 100, pendingConnects: 10, connectsPerSecond: 50, bytesPerSecond: 10MiB, handshakesPerSecond: 5, memory: 64MiB}
suspended: true
`);
  assert.equal(document.name, "blue-1");
  assert.deepEqual(document.agents.sni, ["blue.agents.example", "*.blue.example"]);
  assert.equal(document.agents.identities[0]?.text, "O=agents,CN=*");
  assert.equal(document.agents.sourceCIDRs?.includes("10.1.1.1"), true);
  assert.equal(document.agents.maxAgents, 3);
  assert.equal(document.agents.innerTls, "auto");
  assert.equal(document.agents.token?.kind, "tokenReview");
  assert.deepEqual(document.callers.token, {
    kind: "jwt",
    issuer: "https://issuer.example",
    audience: "culvert",
    algorithms: ["ES256"],
    jwks: { url: "https://issuer.example/keys", caFile: "pki/issuer.crt" },
    subjects: ["system:serviceaccount:*:callers"],
  });
  assert.deepEqual(document.targets.deny, ["10.9.0.0/16"]);
  assert.equal(document.limits.bytesPerSecond, 10 * 1_048_576);
  assert.equal(document.limits.memory, 64 * 1_048_576);
  assert.equal(document.suspended, true);
});

test("a name is enough", () => {
  const document = parsed("name: blue");
  assert.deepEqual([document.agents.sni, document.callers.identities, document.suspended], [[], [], false]);
  assert.deepEqual(document.limits, {});
  assert.equal(document.targets.objection({ host: "10.0.0.1", port: 1 }), undefined);
});

test("scalars are text: a name that looks like a number or a boolean is a name", () => {
  assert.equal(parsed("name: 0123").name, "0123");
  assert.equal(parsed("name: on").name, "on");
});

for (const [text, ...sentences] of [
  ["nam: blue", /^name is missing\.$/, /^the document has no key "nam" \(did you mean name\?\)\.$/],
  ["name: Blue", /^name needs a name like a DNS label/],
  [`name: ${"a".repeat(64)}`, /^name needs a name/],
  ["name: [blue]", /^name needs one value, not a list/],
  ["name:", /^name is empty/],
  ["name: blue\nagents: {snis: [a]}", /^agents has no key "snis" \(did you mean sni\?\)\.$/],
  ["name: blue\nagents: {frobnicate: 1}", /^agents has no key "frobnicate"; known are sni, cert/],
  ["name: blue\nagents: x", /^agents needs "key: value" lines/],
  ["name: blue\nagents: {sni: a.example}", /^agents\.sni needs a list/],
  ['name: blue\nagents: {sni: [ok.example, "a.*.b"]}', /^agents\.sni\[1\] "a\.\*\.b": a star stands alone/],
  ["name: blue\nagents: {cert: a}", /^agents has cert without key/],
  ["name: blue\ncallers: {key: a}", /^callers has key without cert/],
  ["name: blue\nagents: {identities: [XX=1]}", /^agents\.identities\[0\] identity pattern "XX=1": "XX" is none of CN/],
  ["name: blue\nagents: {sourceCIDRs: []}", /^agents\.sourceCIDRs is empty, so nobody could come/],
  ["name: blue\nagents: {sourceCIDRs: [10.0.0.0/40]}", /^agents\.sourceCIDRs the network .* at most 32/],
  ["name: blue\nagents: {innerTls: yes}", /^agents\.innerTls needs never, auto or always/],
  [
    "name: blue\nagents: {strategies: [destHost, random]}",
    /^agents\.strategies\[1\] has no strategy "random"; known are/,
  ],
  ["name: blue\nagents: {strategies: []}", /^agents\.strategies is empty, so no agent could be chosen/],
  ["name: blue\nagents: {claims: [{hosts: [a.example]}]}", /^agents\.claims\[0\]\.identities needs a list/],
  [
    "name: blue\nagents: {claims: [{identities: [CN=a]}, {identities: [CN=b], cidrs: [10.0.0.0/40]}]}",
    /^agents\.claims\[1\] the network "10\.0\.0\.0\/40": .* at most 32/,
  ],
  ["name: blue\ncallers: {fromClusters: [Hub]}", /^callers\.fromClusters\[0\] needs a name like a DNS label/],
  ["name: blue\nagents: {maxAgents: 0}", /^agents\.maxAgents needs a whole number from 1 .* suspended: true/],
  ["name: blue\nagents: {uds: a}", /^agents has no key "uds"/],
  ["name: blue\nallow: [10.0.0.0/8, 10.0.0/8]", /^allow\[1\] the rule "10\.0\.0\/8": .*write for example/],
  ["name: blue\nlimits: {streams: 1.5}", /^limits\.streams needs a whole number/],
  ["name: blue\nlimits: {bytesPerSecond: 10MB}", /^limits\.bytesPerSecond needs a size in bytes, KiB/],
  ["name: blue\nlimits: {memory: 64MB}", /^limits\.memory needs a size in bytes, KiB/],
  ["name: blue\nlimits: {memory: 512KiB}", /^limits\.memory needs at least 1MiB/],
  ["name: blue\nlimits: {bytesPerSecond: 1KiB}", /^limits\.bytesPerSecond needs at least 64KiB/],
  ["name: blue\nsuspended: yes", /^suspended needs true or false/],
  ["name: blue\nagents: {token: {}}", /^agents\.token needs either tokenReview or jwt/],
  [
    "name: blue\nagents: {token: {tokenReview: {agentNamespace: n, agentServiceAccount: s}}}",
    /^agents\.token\.tokenReview\.audience is missing/,
  ],
  [
    "name: blue\nagents: {token: {jwt: {issuer: i, audience: a, jwks: keys.json, subjects: [s], algorithms: [HS256]}}}",
    /^agents\.token\.jwt\.algorithms\[0\] "HS256" cannot prove who made a token/,
  ],
  [
    "name: blue\nagents: {token: {jwt: {issuer: i, audience: a, jwks: 'http://x/keys', subjects: []}}}",
    /^agents\.token\.jwt\.jwks needs the path of a file or a URL that begins with https/,
    /^agents\.token\.jwt\.subjects is empty, so nobody could come/,
  ],
  [
    "name: blue\nagents: {token: {jwt: {issuer: i, audience: a, jwks: keys.json, jwksCa: ca.crt, subjects: [s]}}}",
    /^agents\.token\.jwt has jwksCa, which is for a jwks at an https:\/\/ URL/,
  ],
  ["name: blue\n__proto__: {a: b}\nconstructor: c", /has no key "__proto__".*has no key "constructor"/],
  ["name: blue\nname: red", /^name is there twice at line 2, column 1: leave/],
  [
    "name: blue\nagents: &a {sni: [a.example]}\ncallers: *a",
    /^callers is an alias .* not expanded at line 3, column 10:/,
  ],
  ["name: {a: {b: {c: {d: {e: {f: {g: {h: {i: {j: k}}}}}}}}}}", /nested too deeply/],
  [`name: ${"[".repeat(100_000)}`, /nested too deeply/],
  ["- name: blue", /^the document needs "key: value" lines/],
  ['name: "unfinished', /Missing closing.* at line 1, column 18\.$/],
  ['name: "a\\nb"', /^name holds a line break/],
] as const) {
  test(`a fault has its path and its cure: ${text.slice(0, 60).replaceAll("\n", " ¶ ")}`, () => {
    const faults = parse(text);
    assert.ok(Array.isArray(faults), JSON.stringify(faults));
    assert.equal(faults.length, sentences.length, faults.join("\n"));
    for (const sentence of sentences)
      assert.ok(
        faults.some((fault) => sentence.test(fault)),
        faults.join("\n"),
      );
  });
}

test("any text is documents or sentences, never an exception", () => {
  const pieces = fc.constantFrom(
    "name",
    ":",
    " ",
    "\n",
    "- ",
    "---\n",
    "{",
    "}",
    "[",
    "]",
    "*a",
    "&a ",
    "!!x ",
    "|",
    "? ",
    "blue",
    '"',
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 16 }), (parts) => {
      for (const { value, fault } of yamlDocuments(parts.join(""))) {
        if (fault === undefined) validate(clusterDocument, value);
      }
    }),
    { numRuns: process.env["CI"] === "true" ? 2_000 : 200 },
  );
});

test("faults of a document are in plain words, whatever its values are", () => {
  const wrong = ["''", "7", "-1", "[]", "[[a]]", "[{a: b}]", "{}", "{a: b}", "{a: {b: [c]}}", '"a\\nb"', "!!null x"];
  const keys = ["name", "agents", "callers", "allow", "deny", "limits", "suspended", "nobody"];
  const inAgents = ["sni", "cert", "crl", "identities", "token", "sourceCIDRs", "maxAgents", "innerTls", "nobody"];
  const inToken = ["tokenReview", "jwt", "nobody"];
  const inJwt = ["issuer", "audience", "algorithms", "jwks", "subjects", "nobody"];
  const texts = wrong.flatMap((value) => [
    value,
    ...keys.map((key) => `${key === "name" ? "" : "name: blue\n"}${key}: ${value}`),
    ...inAgents.map((key) => `name: blue\nagents: {${key}: ${value}}`),
    ...inToken.map((key) => `name: blue\ncallers: {token: {${key}: ${value}}}`),
    ...inJwt.map((key) => `name: blue\nagents: {token: {jwt: {${key}: ${value}}}}`),
    `name: blue\nlimits: {streams: ${value}, memory: ${value}, nobody: ${value}}`,
  ]);
  const told = texts.flatMap((text) => {
    const result = parse(text);
    return Array.isArray(result) ? result : [];
  });
  assert.ok(told.length > 200, `${told.length} faults`);
  for (const sentence of told) assert.doesNotMatch(sentence, ZODS_OWN);
});
