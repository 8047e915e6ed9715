import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { HELLO, LinkServer, testCertificate } from "../../shared/link/testing.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { UnknownIssuer } from "../../shared/tls/unknown-issuer.ts";
import { DEFAULT_OPTIONS } from "../../shared/yamux/options.ts";
import { attempt } from "./attempt.ts";
import type { Credentials } from "./credentials.ts";
import { Path } from "./path.ts";
import type { Reach } from "./reach.ts";

test("who stands at the end of TLS is remembered until somebody else stands there", async (t) => {
  const server = await LinkServer.start();
  t.after(() => server[Symbol.asyncDispose]());
  const { ca } = await testCertificate();
  let credentials: Credentials = { ca: (await Authority.create("another")).cert };
  const path = new Path({ keepaliveMs: 20_000, maxCarrierAgeMs: 0 });
  const reach: Partial<Reach> = {
    server: { host: "localhost", port: server.port, path: "/" },
    way: { open: async () => ({ socket: net.connect(server.port, server.host) }), worked: () => {}, failed: () => {} },
    credentials: { current: () => credentials },
    ...{ tls: { minVersion: "TLSv1.2", ciphers: "" }, innerTls: "auto", hello: HELLO, timeoutMs: 5_000, path },
    ...{ replayBytes: 65_536, retry: { baseMs: 10, capMs: 20 }, session: DEFAULT_OPTIONS },
  };
  const owner = { onClosed: () => {} };
  const attempted = () => attempt(reach as Reach, owner as never, new AbortController().signal);
  await assert.rejects(attempted(), UnknownIssuer);
  assert.equal(path.intercepted, true);
  credentials = { ca };
  const { session } = await attempted();
  assert.equal(path.intercepted, false);
  session.destroy(new Error("the test is over"));
});
