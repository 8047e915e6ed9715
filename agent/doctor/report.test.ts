import assert from "node:assert/strict";
import { test } from "node:test";
import { FAULTS } from "../../shared/faults/fault-rows.ts";
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
  const { value, ...seen } = compareClocks(NOW - aheadMs, NOW);
  return { step: "clock", state: seen.finding === undefined ? "passed" : "failed", ms: 0, ...seen };
}

const by = "someone:443";
const REFUSED: Finding = { culprit: "not_admitted", by: "its own words" };
const early = { culprit: "server_not_yet_valid", by, validFrom: NOW + HOUR } as const;
const expired = (hours: number): Finding => ({ culprit: "server_expired", by, validTo: NOW - hours * HOUR });

const VERDICTS: ReadonlyArray<readonly [sentence: string, steps: readonly Step[], culprit: FaultCode | "none"]> = [
  ["nothing was found", [{ step: "tls", state: "passed", detail: "" }, clock(0)], "none"],
  [
    "the first finding counts",
    [failed("configuration", { culprit: "agent_expired", by, validTo: NOW - DAY }), failed("upgrade", REFUSED)],
    "agent_expired",
  ],
  ["a clock that explains an expired certificate", [failed("tls", expired(1)), clock(DAY)], "clock"],
  ["a clock that explains one that is not valid yet", [failed("tls", early), clock(-DAY)], "clock"],
  ["a certificate that is not valid yet, and a clock that is right", [failed("tls", early), clock(0)], early.culprit],
  [
    "a clock that is off, and a certificate that ended long before",
    [failed("tls", expired(240)), clock(DAY)],
    "server_expired",
  ],
  [
    "a clock that is off has no part in an interception",
    [failed("tls", { culprit: "intercepted", by: "CN=Corp" }), clock(DAY)],
    "intercepted",
  ],
  ["a clock that is off, and nothing else yet", [clock(-2 * DAY)], "clock"],
  [
    "a server that does not let in yet what is valid by this machine's clock",
    [failed("upgrade", { ...REFUSED, outOfTime: "early" }), clock(DAY)],
    "clock",
  ],
  [
    "a server that lets in no more what is valid by this machine's clock",
    [failed("admission", { ...REFUSED, outOfTime: "ended" }), clock(-DAY)],
    "clock",
  ],
  [
    "a clock that is ahead ends nothing sooner at the server",
    [failed("upgrade", { ...REFUSED, outOfTime: "ended" }), clock(DAY)],
    "not_admitted",
  ],
  [
    "a clock that is behind begins nothing later at the server",
    [failed("upgrade", { ...REFUSED, outOfTime: "early" }), clock(-DAY)],
    "not_admitted",
  ],
  ["a minute is no day", [failed("upgrade", { ...REFUSED, outOfTime: "early" }), clock(60_000)], "not_admitted"],
];

for (const [sentence, steps, culprit] of VERDICTS) {
  test(`verdict: ${sentence}`, () => assert.equal(verdictOf(steps, NOW).culprit, culprit));
}

test("every verdict is a sentence and a next step without gaps, each different from all others", () => {
  const codes = Object.keys(FAULTS) as FaultCode[];
  const verdicts = codes.map((culprit) =>
    verdictOf([failed("tcp", { culprit, by, validFrom: NOW, validTo: NOW })], NOW),
  );
  for (const { sentence, next } of verdicts) {
    assert.match(sentence, /^[^{}]{20,250}[.?]$/);
    assert.match(next, /^[A-Z][^{}]{10,330}[.?]$/);
  }
  assert.equal(new Set(verdicts.map(({ sentence }) => sentence)).size, codes.length);
});

test("a verdict has the facts of the case: names, times, who names a proxy or a script, and who opens TLS on the way", () => {
  const texts = (finding: Finding, openedBy?: string) => {
    const { sentence, next } = verdictOf([{ ...failed("tls", finding), ...(openedBy && { openedBy }) }], NOW);
    return `${sentence} ${next}`;
  };
  assert.match(texts(expired(1)), /^The certificate of someone:443 expired on 2026-06-15 11:00\. Renew it/);
  assert.match(
    texts(early),
    /^The certificate of someone:443 is not valid before 2026-06-15 13:00\. If this machine's clock/,
  );
  assert.match(
    texts({ culprit: "wrong_name", by, names: "a and b" }),
    /^The server's certificate is for a and b, not for someone:443\./,
  );
  assert.match(texts({ culprit: "wrong_name", by }), /^The server's certificate is for no name, not for someone:443\./);
  assert.match(texts({ culprit: "unknown_ca", by: "ACME" }), /is signed by "ACME", .* If "ACME" is the server's CA/);
  assert.match(
    texts({ culprit: "refused", by, proxyFrom: "HTTPS_PROXY" }),
    / Check host and port in HTTPS_PROXY, and whether/,
  );
  assert.match(texts({ culprit: "refused", by }), / Check host and port in --server, and whether/);
  assert.match(
    texts(expired(1), "Corp CA"),
    /^TLS is opened on the way by "Corp CA", .*\. The certificate of someone:443 expired/,
  );
  const passed = verdictOf([{ step: "tls", state: "passed", detail: "", openedBy: "Corp CA" }], NOW);
  assert.match(passed.sentence, /^TLS is opened on the way by "Corp CA", .*\. Nothing is in the way/);
});

const MINE: Finding = { culprit: "agent_expired", by: "agent.crt", validTo: NOW - HOUR };
const LONG_AGO = NOW - 30 * DAY;

/** The other findings of the report, beside the verdict. */
function beside(steps: readonly Step[]): string[] {
  const { next } = verdictOf(steps, NOW);
  return next.split(" Beside that: ").slice(1);
}

test("beside the verdict is named what would be in the way next, each once, and no consequence of it", () => {
  const ca: Finding = { culprit: "ca_expired", by: "--ca-cert", validTo: LONG_AGO };
  const refused = failed("upgrade", { culprit: "not_admitted", by: "the client certificate expired" });
  assert.deepEqual(beside([failed("configuration", MINE), refused]), []);
  const [own, server, ...more] = beside([
    { ...failed("configuration", MINE), others: [ca] },
    failed("tls", ca),
    failed("inner tls", { culprit: "server_expired", by, validTo: LONG_AGO }),
    refused,
  ]);
  assert.match(own ?? "", /^The CA certificate in --ca-cert expired on 2026-05-16 12:00: /);
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
  const ended = failed("tls", expired(1));
  assert.equal(verdictOf([none, ended, clock(DAY)], NOW).culprit, "clock");
  assert.match(beside([none, ended, clock(DAY)])[0] ?? "", /^The agent has no credential: /);
});

test("beside a clock that is off is named what has ended by the server's clock, too", () => {
  const mine = failed("configuration", MINE);
  assert.equal(verdictOf([mine, failed("tls", expired(1)), clock(DAY)], NOW).culprit, "clock");
  assert.deepEqual(beside([mine, failed("tls", expired(1)), clock(DAY)]), []);
  assert.match(
    beside([mine, failed("tls", expired(240)), clock(DAY)])[0] ?? "",
    /^The certificate of someone:443 expired on/,
  );
});

test("a server that lets us not in for another reason says it, and a clock that is off is reported beside it", () => {
  for (const aheadMs of [6 * 60_000, -DAY]) {
    const off = clock(aheadMs);
    const { culprit, sentence } = verdictOf([failed("upgrade", REFUSED), off], NOW);
    assert.equal(culprit, "not_admitted");
    assert.match(sentence, /^The server is reached, and does not let this agent in: its own words\.$/);
    const [told, ...more] = beside([failed("upgrade", REFUSED), off]);
    assert.match(told ?? "", /^The clock of this machine is .* the server's: .* Set this machine's clock/);
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
