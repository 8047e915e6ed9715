import assert from "node:assert/strict";
import { test } from "node:test";
import { dialFault, NoTls, SECURING, tooLate } from "../../shared/link/dial-fault.ts";
import { clockNote } from "../../shared/tls/clock-skew.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { Finding } from "./steps.ts";
import { refusalFinding, tlsFault } from "./tls-fault.ts";
import type { TunnelDial } from "./tunnel-steps.ts";

test("what is no TLS is found at the server, and behind a proxy at the proxy, with who named it", async () => {
  const dial = { at: "server:443" } as TunnelDial;
  const plain = Object.assign(new Error("wrong version number"), { code: "ERR_SSL_WRONG_VERSION_NUMBER" });
  const findingOf = async (proxy?: { at: string; from: string }) => {
    const error = new NoTls(plain, { step: SECURING, host: "server", proxy });
    return (await tlsFault(error, undefined, dial)).finding;
  };
  assert.deepEqual(await findingOf(), { culprit: "no_tls", by: "server:443" });
  assert.deepEqual(await findingOf({ at: "http://p:3128", from: "HTTPS_PROXY" }), {
    ...{ culprit: "no_tls", by: "http://p:3128", proxyFrom: "HTTPS_PROXY" },
  });
});

test("a handshake that somebody cuts, one that nobody answers, and one that TLS has words for are three findings", async () => {
  const dial = { at: "server:443" } as TunnelDial;
  const proxy = { at: "http://p:3128", from: "HTTPS_PROXY" };
  const cut = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
  const alert = Object.assign(new Error("handshake failure"), { code: "ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE" });
  const findingOf = async (error: Error) => (await tlsFault(error, undefined, dial)).finding;
  const standing = (through: typeof proxy | undefined) => ({ step: SECURING, host: "server", proxy: through }) as const;
  const at = { culprit: "tls", by: "server:443" };
  const behind = { culprit: "tls", by: proxy.at, proxyFrom: proxy.from };
  for (const [through, finding] of [
    [undefined, at],
    [proxy, behind],
  ] as const) {
    assert.deepEqual(await findingOf(dialFault(cut, standing(through))), { ...finding, handshake: "cut" });
    assert.deepEqual(await findingOf(tooLate(standing(through), "late")), { ...finding, handshake: "silent" });
    assert.deepEqual(await findingOf(dialFault(alert, standing(through))), at);
  }
});

const REFUSALS: ReadonlyArray<readonly [status: number, reason: string, outOfTime: Finding["outOfTime"]]> = [
  [401, "the client certificate expired on 2026-06-14T12:00:00Z", "ended"],
  [401, "the CA of the client certificate has expired", "ended"],
  [401, "the client certificate is not valid before 2026-06-16T12:00:00Z: check both clocks", "early"],
  [401, "the CA of the client certificate is not valid yet: check both clocks", "early"],
  [
    401,
    "the token expired at 2026-06-14T12:00:00Z: the agent's token file holds an old one, or a clock is wrong",
    "ended",
  ],
  [401, "the token is not valid yet: check both clocks", "early"],
  [401, 'the API server does not accept the token for "culvert": service account token is not valid yet', "early"],
  [401, "no client certificate was sent, or none of a CA that is accepted here", undefined],
  [401, "the token is signed by a key that is not the issuer's", undefined],
  [403, "the client certificate CN=expired is not among --agent-identities", undefined],
  [429, 'cluster "blue" has 100 agents (--max-agents)', undefined],
  [503, "this server is shutting down: come back in 1 s", undefined],
];

test("of the server's refusals those that speak of time may be a clock's", () => {
  for (const [status, reason, outOfTime] of REFUSALS) {
    const expected = { culprit: "not_admitted", by: reason, ...(outOfTime && { outOfTime }) };
    assert.deepEqual(refusalFinding(new LinkRefused({ status, reason })), expected);
  }
  const { unauthenticated: closeCode, duplicate } = CloseCode;
  const reason = "the token is not valid yet: check both clocks";
  assert.equal(refusalFinding(new LinkRefused({ closeCode, reason })).outOfTime, "early");
  assert.equal(refusalFinding(new LinkRefused({ closeCode: duplicate, reason: "it expired" })).outOfTime, undefined);
});

test("what the agent has put behind the server's words is not the server's", () => {
  const now = Date.now();
  const note = clockNote(new Date(now - 86_400_000).toUTCString(), now);
  assert.match(note, /1 day ahead/);
  const reason = "no client certificate was sent; and none is needed";
  assert.equal(refusalFinding(new LinkRefused({ status: 401, reason: `${reason}${note}` })).by, reason);
});
