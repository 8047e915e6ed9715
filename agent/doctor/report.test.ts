import assert from "node:assert/strict";
import { test } from "node:test";
import type { FaultCode } from "../../shared/faults/faults.ts";
import { compareClocks, type Finding, type Step, type StepName, verdictOf } from "./report.ts";

const NOW = Date.parse("2026-06-15T12:00:00Z");
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

function failed(step: StepName, finding: Finding): Step {
  return { step, state: "failed", ms: 1, detail: "", finding };
}

/** The server's clock as a step. */
function clock(aheadMs: number): Step {
  const { value, ...seen } = compareClocks(NOW - aheadMs, "Date", NOW);
  return { step: "clock", state: seen.finding === undefined ? "passed" : "failed", ms: 0, ...seen };
}

const by = "someone:443";
const proxyFrom = "--proxy";
const REFUSED: Finding = { culprit: "not_admitted", by: "its own words" };

const ROWS: ReadonlyArray<
  readonly [sentence: string, steps: readonly Step[], culprit: FaultCode | "none", says: RegExp]
> = [
  ["nothing was found", [{ step: "tls", state: "passed", detail: "" }, clock(0)], "none", /^Nothing is in the way/],
  [
    "a box that is gone through",
    [{ step: "tls", state: "passed", detail: "", openedBy: "Corp CA" }, clock(0)],
    "none",
    /^TLS is opened on the way by "Corp CA", and an agent with these options gets its tunnel all the same/,
  ],
  [
    "a server that takes no inner TLS, which is the way through a box",
    [failed("upgrade", { culprit: "inner_tls_off", by, openedBy: "Corp CA" })],
    "inner_tls_off",
    /^TLS is opened on the way by "Corp CA", and the server at someone:443 takes no inner TLS/,
  ],
  [
    "a server that takes no inner TLS, which nobody but the agent asks for",
    [failed("upgrade", { culprit: "inner_tls_off", by })],
    "inner_tls_off",
    /^This agent wants inner TLS \(--inner-tls=always\)/,
  ],
  [
    "a certificate of whoever opens TLS is not the server's to renew",
    [failed("tls", { culprit: "server_expired", by, openedBy: "Corp CA", validTo: NOW - DAY })],
    "server_expired",
    /"Corp CA", and the certificate that it shows in place of someone:443 expired on 2026-06-14/,
  ],
  [
    "the server's name",
    [failed("dns", { culprit: "dns", by })],
    "dns",
    /server's name does not resolve here \(someone:443\)/,
  ],
  ["the proxy's name", [failed("dns", { culprit: "dns", by, proxyFrom })], "dns", /name of the proxy someone:443/],
  ["a server that refuses", [failed("tcp", { culprit: "refused", by })], "refused", /^someone:443 refuses/],
  ["a proxy that refuses", [failed("tcp", { culprit: "refused", by, proxyFrom })], "refused", /^There is no proxy at/],
  ["a server that is silent", [failed("tcp", { culprit: "timeout", by })], "timeout", /firewall swallows/],
  [
    "a proxy that is silent",
    [failed("tcp", { culprit: "timeout", by, proxyFrom })],
    "timeout",
    /^The proxy someone:443/,
  ],
  [
    "what speaks no TLS behind a proxy is the port's or the proxy's fault",
    [failed("tls", { culprit: "no_tls", by, proxyFrom })],
    "no_tls",
    /^The proxy someone:443 has opened the connection, .* the port in --server may be a wrong one, or the proxy shows a page/,
  ],
  [
    "what a proxy says of the server is the server's",
    [failed("proxy", { culprit: "refused", by })],
    "refused",
    /^someone:443 refuses/,
  ],
  [
    "the first finding counts",
    [
      failed("configuration", { culprit: "agent_expired", by, validTo: NOW - DAY }),
      failed("upgrade", { culprit: "not_admitted", by }),
    ],
    "agent_expired",
    /expired on 2026-06-14 12:00/,
  ],
  [
    "a clock that explains an expired certificate",
    [failed("tls", { culprit: "server_expired", by, validTo: NOW - HOUR }), clock(DAY)],
    "clock",
    /^The clock of this machine is 1 day ahead of the server's: by it, what is valid is not/,
  ],
  [
    "a clock that explains one that is not valid yet",
    [failed("tls", { culprit: "server_not_yet_valid", by, validFrom: NOW + HOUR }), clock(-DAY - HOUR)],
    "clock",
    /1 day 1 h behind the server's/,
  ],
  [
    "a clock that is off, and a certificate that ended long before",
    [failed("tls", { culprit: "server_expired", by, validTo: NOW - 10 * DAY }), clock(DAY)],
    "server_expired",
    /expired on 2026-06-05/,
  ],
  [
    "a clock that is off has no part in an interception",
    [failed("tls", { culprit: "intercepted", by: "CN=Corp" }), clock(DAY)],
    "intercepted",
    /^TLS is intercepted by "CN=Corp"/,
  ],
  [
    "a CA that is not in --ca-cert is told as that first",
    [failed("tls", { culprit: "unknown_ca", by: "konnectivity-signer" })],
    "unknown_ca",
    /^The server's certificate is signed by "konnectivity-signer", which is not in --ca-cert\.$/,
  ],
  [
    "a CA that is not in --ca-cert, and none was given",
    [failed("tls", { culprit: "unknown_ca", by: "ACME", relation: "none_given" })],
    "unknown_ca",
    /^The server's certificate is signed by "ACME", which is not in --ca-cert \(none was given\)\.$/,
  ],
  [
    "a CA of the same name as the one in --ca-cert",
    [failed("tls", { culprit: "unknown_ca", by: "ACME", relation: "same_name" })],
    "unknown_ca",
    /: same name \("ACME"\), another key\.$/,
  ],
  [
    "a certificate that is not valid yet, and a clock that was found right",
    [failed("tls", { culprit: "server_not_yet_valid", by, validFrom: NOW + DAY }), clock(0)],
    "server_not_yet_valid",
    /is not valid before 2026-06-16 12:00, and this machine's clock agrees with the server's\.$/,
  ],
  [
    "a certificate that is not valid yet, and a clock that nobody has compared",
    [failed("tls", { culprit: "server_not_yet_valid", by, validFrom: NOW + DAY })],
    "server_not_yet_valid",
    /is not valid before 2026-06-16 12:00: is this machine's clock behind\?$/,
  ],
  [
    "an agent's certificate that is not valid yet, and a clock that was found right",
    [failed("configuration", { culprit: "agent_not_yet_valid", by, validFrom: NOW + DAY }), clock(0)],
    "agent_not_yet_valid",
    /is not valid before 2026-06-16 12:00, and this machine's clock agrees with the server's\.$/,
  ],
  [
    "a client's certificate that a server shows",
    [failed("tls", { culprit: "wrong_usage", by, isClients: true })],
    "wrong_usage",
    /^The certificate of someone:443 is a client's: its extended key usage has no serverAuth\.$/,
  ],
  ["a clock that is off, and nothing else yet", [clock(-2 * DAY)], "clock", /2 days behind .* will not be valid by it/],
  [
    "a server that does not let in yet what is valid by this machine's clock",
    [failed("upgrade", { ...REFUSED, outOfTime: "early" }), clock(DAY)],
    "clock",
    /^The clock of this machine is 1 day ahead of the server's, and the server says: its own words\.$/,
  ],
  [
    "a server that lets in no more what is valid by this machine's clock",
    [failed("admission", { ...REFUSED, outOfTime: "ended" }), clock(-DAY)],
    "clock",
    /^The clock of this machine is 1 day behind the server's, and the server says: its own words\.$/,
  ],
  [
    "a clock that is ahead ends nothing sooner at the server",
    [failed("upgrade", { ...REFUSED, outOfTime: "ended" }), clock(DAY)],
    "not_admitted",
    /its own words/,
  ],
  [
    "a clock that is behind begins nothing later at the server",
    [failed("upgrade", { ...REFUSED, outOfTime: "early" }), clock(-DAY)],
    "not_admitted",
    /its own words/,
  ],
  [
    "a minute is no day",
    [failed("upgrade", { ...REFUSED, outOfTime: "early" }), clock(60_000)],
    "not_admitted",
    /its own words/,
  ],
];

for (const [sentence, steps, culprit, says] of ROWS) {
  test(`verdict: ${sentence}`, () => {
    const verdict = verdictOf(steps, NOW);
    assert.equal(verdict.culprit, culprit);
    assert.match(verdict.sentence, says);
  });
}

const CULPRITS: readonly FaultCode[] = [
  ...(["dns", "refused", "unreachable", "timeout", "closed"] as const),
  ...(["proxy_auth_required", "proxy_auth_refused", "proxy_auth_unsupported", "proxy_silent", "proxy_closed"] as const),
  ...([
    "proxy_auth_withheld",
    "kdc_silent",
    "proxy_forbidden",
    "proxy_unavailable",
    "proxy_tls",
    "proxy_protocol",
    "pac",
  ] as const),
  ...([
    "configuration",
    "no_credential",
    "agent_expired",
    "agent_not_yet_valid",
    "token_expired",
    "ca_expired",
  ] as const),
  ...(["clock"] as const),
  ...([
    "unknown_ca",
    "intercepted",
    "outer_ca",
    "inner_tls_never",
    "server_expired",
    "server_not_yet_valid",
    "wrong_name",
    "wrong_usage",
    "unknown_name",
    "no_tls",
    "tls",
  ] as const),
  ...(["grpc_server", "upgrade_stripped", "web_page", "redirected", "gateway", "wrong_path", "no_answer"] as const),
  ...(["not_admitted", "certificate_unseen"] as const),
  ...(["inner_tls_off", "inner_untrusted", "inner_tls", "held_back"] as const),
];

test("every verdict is a sentence and a next step, each different from all others", () => {
  const verdicts = CULPRITS.map((culprit) => verdictOf([failed("tcp", { culprit, by })], NOW));
  for (const { sentence, next } of verdicts) {
    assert.match(sentence, /^\S.{20,250}[.?]$/);
    assert.match(next, /^[A-Z].{10,330}[.?]$/);
  }
  assert.equal(new Set(verdicts.map(({ sentence }) => sentence)).size, CULPRITS.length);
});

const MINE: Finding = { culprit: "agent_expired", by: "agent.crt", validTo: NOW - HOUR };
const LONG_AGO = NOW - 30 * DAY;

/** What is named beside the verdict. */
function beside(steps: readonly Step[]): string[] {
  const { next } = verdictOf(steps, NOW);
  return next.split(" Beside that: ").slice(1);
}

test("beside the verdict is named what would be in the way next, each once, and no consequence of it", () => {
  const ca: Finding = { culprit: "ca_expired", by: "CN=ours (--ca-cert)", validTo: LONG_AGO };
  const refused = failed("upgrade", { culprit: "not_admitted", by: "the client certificate expired" });
  assert.deepEqual(beside([failed("configuration", MINE), refused]), []);
  const [own, server, ...more] = beside([
    { ...failed("configuration", MINE), others: [ca] },
    failed("tls", ca),
    failed("inner tls", { culprit: "server_expired", by, validTo: LONG_AGO }),
    refused,
  ]);
  assert.match(own ?? "", /^The CA certificate CN=ours \(--ca-cert\) expired on 2026-05-16 12:00: /);
  assert.match(server ?? "", /^The certificate of someone:443 expired on 2026-05-16 12:00\. Renew it at the server/);
  assert.deepEqual(more, []);
});

test("without a credential a fault of the way is the culprit, and the missing credential is named beside it", () => {
  const none = failed("configuration", { culprit: "no_credential", by: "--agent-cert" });
  for (const [step, culprit] of [
    ["tcp", "refused"],
    ["proxy", "proxy_forbidden"],
    ["tls", "unknown_ca"],
  ] as const) {
    const steps = [none, failed(step, { culprit, by })];
    assert.equal(verdictOf(steps, NOW).culprit, culprit);
    const [missing, ...more] = beside(steps);
    assert.match(missing ?? "", /^The agent has no credential: .* Give --agent-cert and --agent-key/);
    assert.deepEqual(more, []);
  }
  for (const culprit of ["not_admitted", "inner_tls_off", "certificate_unseen"] as const) {
    const steps = [none, failed("upgrade", { culprit, by })];
    assert.deepEqual([verdictOf(steps, NOW).culprit, beside(steps)], ["no_credential", []], "what follows from it");
  }
  assert.equal(verdictOf([none, failed("upgrade", REFUSED), clock(DAY)], NOW).culprit, "no_credential");
  const ended = failed("tls", { culprit: "server_expired", by, validTo: NOW - HOUR });
  assert.equal(verdictOf([none, ended, clock(DAY)], NOW).culprit, "clock");
  assert.match(beside([none, ended, clock(DAY)])[0] ?? "", /^The agent has no credential: /);
});

test("beside a clock that is off is named what has ended by the server's clock, too", () => {
  const ended = (validTo: number) => failed("tls", { culprit: "server_expired", by, validTo });
  const mine = failed("configuration", MINE);
  assert.equal(verdictOf([mine, ended(NOW - HOUR), clock(DAY)], NOW).culprit, "clock");
  assert.deepEqual(beside([mine, ended(NOW - HOUR), clock(DAY)]), []);
  assert.match(beside([mine, ended(LONG_AGO), clock(DAY)])[0] ?? "", /^The certificate of someone:443 expired on/);
});

test("the network on the way to the script of --pac is reported as that, and not as one to the server", () => {
  const by = "the PAC script http://pac.corp/x refused the connection";
  for (const culprit of ["dns", "refused", "unreachable", "timeout", "closed"] as const) {
    const verdict = verdictOf([failed("proxy route", { culprit, by, isOfScript: true })], NOW);
    assert.equal(verdict.culprit, culprit);
    assert.equal(verdict.sentence, `The script of --pac cannot be had: ${by}.`);
    assert.match(verdict.next, /^Correct (the host|host and port) in --pac, .{10,300} Or name the proxy by --proxy\.$/);
  }
  assert.match(verdictOf([failed("proxy route", { culprit: "pac", by, isOfScript: true })]).sentence, /gives no route/);
});

test("a server that lets us not in for another reason says it, and a clock that is off is reported beside it", () => {
  for (const aheadMs of [6 * 60_000, -DAY]) {
    const off = clock(aheadMs);
    const { culprit, sentence } = verdictOf([failed("upgrade", REFUSED), off], NOW);
    assert.equal(culprit, "not_admitted");
    assert.match(sentence, /^The server is reached, and does not let this agent in: its own words\.$/);
    const [told, ...more] = beside([failed("upgrade", REFUSED), off]);
    assert.match(told ?? "", /^The clock of this machine is .* the server's\. Set this machine's clock/);
    assert.deepEqual(more, []);
  }
});

test("beside a clock that explains our certificate is told what it does not explain", () => {
  const mine = failed("configuration", MINE);
  assert.match(
    beside([mine, failed("upgrade", REFUSED), clock(DAY)])[0] ?? "",
    /^The server is reached, .*its own words/,
  );
});

test("a TLS handshake that is cut, not answered or refused is reported as that, and of a cut one the server is asked first", () => {
  const found = (more: Partial<Finding>) => verdictOf([failed("tls", { culprit: "tls", by, ...more })]);
  const proxy = { by: "http://p:3128", proxyFrom: "--proxy" };
  const all = [
    found({ handshake: "cut" }),
    found({ handshake: "silent" }),
    found({}),
    found({ ...proxy, handshake: "cut" }),
    found({ ...proxy, handshake: "silent" }),
  ];
  const [cut, silent, refused, cutBehind, silentBehind] = all.map(({ sentence }) => sentence);
  assert.match(cut ?? "", /closes the connection in the TLS handshake\.$/);
  assert.match(silent ?? "", /^TCP to \S+ stands, and nobody answers the TLS handshake\.$/);
  assert.match(refused ?? "", /^The TLS handshake with \S+ fails\.$/);
  assert.match(
    cutBehind ?? "",
    /^The proxy http:\/\/p:3128 has opened the connection, and the TLS handshake .* is cut:/,
  );
  assert.match(
    silentBehind ?? "",
    /^The proxy .*, and nobody answers the TLS handshake over it: .* behind it hangs\.$/,
  );
  for (const { sentence, next } of all) {
    assert.ok(sentence.length <= 250, sentence);
    assert.match(next, /^[A-Z].{10,330}[.?]$/);
  }
  assert.match(
    all[0]?.next ?? "",
    /^See whether the server runs: .* look at its log: one that has no file descriptors left .*, a firewall that/,
  );
});

const RELATIONS = ["none_given", "another", "same_name", "self_signed"] as const;
const NAMES = "a.example, b.example, c.example and 2 more";

test("what is said of a certificate has at most 30 words in each sentence, and names an option", () => {
  const findings: Finding[] = [
    ...RELATIONS.map((relation): Finding => ({ culprit: "unknown_ca", by: "X", relation })),
    ...RELATIONS.map((relation): Finding => ({ culprit: "inner_untrusted", by: "X", relation, openedBy: "Y" })),
    ...(["intercepted", "outer_ca", "inner_tls_never"] as const).map((culprit): Finding => ({ culprit, by: "X" })),
    ...(["server_expired", "server_not_yet_valid", "wrong_usage"] as const).map(
      (culprit): Finding => ({ culprit, by }),
    ),
    { culprit: "wrong_name", by: "10.0.0.1", names: NAMES },
  ];
  for (const finding of findings) {
    for (const steps of [[failed("tls", finding)], [failed("tls", finding), clock(0)]]) {
      const { sentence, next } = verdictOf(steps, NOW);
      for (const words of `${sentence} ${next}`.split(/(?<=[.?]) (?=[A-Z])/)) {
        assert.ok(words.split(" ").length <= 30, words);
      }
      assert.match(`${sentence} ${next}`, /--(ca-cert|outer-ca|cluster-cert|server)/);
    }
  }
});
