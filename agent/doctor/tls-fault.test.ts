import assert from "node:assert/strict";
import { test } from "node:test";
import { NoTls, SECURING } from "../../shared/link/dial-fault.ts";
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
