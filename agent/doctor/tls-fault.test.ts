import assert from "node:assert/strict";
import { test } from "node:test";
import { dialFault, NoTls, SECURING, tooLate } from "../../shared/link/dial-fault.ts";
import type { TunnelDial } from "./outer-tls.ts";
import { tlsFault } from "./tls-fault.ts";

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
