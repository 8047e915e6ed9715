import assert from "node:assert/strict";
import { test } from "node:test";
import { dialFault, SECURING, timeoutFault } from "../../shared/link/dial-faults.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { refusalFinding, tlsFault } from "./tls-fault.ts";
import type { TunnelDial } from "./tunnel-steps.ts";

test("what is no TLS is found at the server, and behind a proxy at the proxy, with who named it", async () => {
  const dial = { at: "server:443" } as TunnelDial;
  const plain = Object.assign(new Error("wrong version number"), { code: "ERR_SSL_WRONG_VERSION_NUMBER" });
  const findingOf = async (proxy?: { at: string; from: string }) => {
    const error = dialFault(plain, { step: SECURING, host: "server", proxy });
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
    assert.deepEqual(await findingOf(timeoutFault(standing(through), "late")), { ...finding, handshake: "silent" });
    assert.deepEqual(await findingOf(dialFault(alert, standing(through))), at);
  }
});

test("a refusal of credentials that are out of their validity period may be the clock's fault", () => {
  const outOfTime = [
    ["certificate_expired", "ended"],
    ["token_expired", "ended"],
    ["certificate_not_yet_valid", "early"],
    ["token_not_yet_valid", "early"],
    ["certificate_missing", undefined],
    [undefined, undefined],
  ] as const;
  for (const [fault, expected] of outOfTime) {
    // The sentence decides nothing, whatever it says.
    const refusal = new LinkRefused({ status: 401, reason: "it expired", note: "; a note of the agent", fault });
    const finding = { culprit: "not_admitted", by: "it expired", ...(expected && { outOfTime: expected }) };
    assert.deepEqual(refusalFinding(refusal), finding);
  }
});
