import assert from "node:assert/strict";
import type { RequestListener } from "node:http";
import { createServer, type ServerOptions } from "node:https";
import type { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import type { TLSSocket } from "node:tls";
import { blackHoleTarget, freePort } from "../../e2e/harness/targets/absent.ts";
import { listening } from "../basics/testing/wait.ts";
import { testCertificate } from "../link/testing/ends.ts";
import { Authority } from "../pki/certificates.ts";
import { rsaCertificate } from "../pki/testing/certificates.ts";
import { failureOf, HttpsClient, type HttpsRequest } from "./https-client.ts";

test("a kept connection that breaks under a request is no failure: the request goes out once more", async (t) => {
  const { ca, leaf } = await testCertificate();
  const seen = new WeakSet<Socket>();
  let connections = 0;
  const server = createServer(leaf, ({ socket }, response) => {
    if (seen.has(socket)) {
      socket.destroy();
      return;
    }
    seen.add(socket);
    connections++;
    response.end("fine");
  });
  const url = new URL(`https://localhost:${await listening(t, server)}`);
  const client = new HttpsClient();
  t.after(() => client.close());
  for (let i = 1; i <= 3; i++) {
    const { status, text } = await client.send({
      url,
      method: "GET",
      headers: {},
      tls: { ca },
      signal: new AbortController().signal,
    });
    assert.deepEqual([status, text, connections], [200, "fine", i]);
  }
});

test("an address that is not in the certificate fails with the names that are", async (t) => {
  const authority = await Authority.create("ca");
  const leaf = await authority.issue({ cn: "api", names: ["api.example"], usage: "server" });
  const url = new URL(`https://127.0.0.1:${await listening(t, createServer(leaf))}`);
  const client = new HttpsClient();
  t.after(() => client.close());
  const asked = client.send({
    url,
    method: "GET",
    headers: {},
    tls: { ca: authority.cert },
    signal: new AbortController().signal,
  });
  const error = await asked.catch((reason: unknown) => reason);
  assert.match(failureOf(error), /the certificate is for api\.example, not for 127\.0\.0\.1$/);
});

test("a server that is not reached is told with each address, also when time is over; a certificate that is none too", async (t) => {
  await using hole = await blackHoleTarget();
  const port = await freePort();
  const client = new HttpsClient();
  t.after(() => client.close());
  const why = async (authority: string, tls: HttpsRequest["tls"] = {}, timeoutMs = 30_000) => {
    const signal = AbortSignal.timeout(timeoutMs);
    const asked = client.send({ url: new URL(`https://${authority}`), method: "GET", headers: {}, tls, signal });
    return failureOf(await asked.catch((reason: unknown) => reason));
  };
  assert.match(await why(`127.0.0.1:${port}`), /^connect ECONNREFUSED 127\.0\.0\.1:\d+$/);
  assert.match(await why(`localhost:${port}`), /ECONNREFUSED/);
  assert.match(await why(`[::1]:${port}`), /^connect ECONNREFUSED ::1:\d+$/);
  assert.equal(await why(hole.address, {}, 50), "no answer in time");
  const open = await listening(t, createServer());
  assert.match(await why(`127.0.0.1:${open}`, { cert: "no PEM", key: "no PEM" }), /PEM|no start line/i);
});

/** Asks a server with these options once. */
async function ask(t: TestContext, ca: string, options: ServerOptions, answer = atOnce): Promise<number> {
  const port = await listening(t, createServer(options, answer));
  const client = new HttpsClient();
  t.after(() => client.close());
  const url = new URL(`https://localhost:${port}`);
  const signal = new AbortController().signal;
  return (await client.send({ url, method: "GET", headers: {}, tls: { ca }, signal })).status;
}

const atOnce: RequestListener = (_request, response) => void response.end();

test("a server may choose no key exchange that costs the client much more than the usual ones", async (t) => {
  const { ca, leaf } = await testCertificate();
  for (const ecdhCurve of ["X25519", "P-256", "P-384"]) {
    assert.equal(await ask(t, ca, { ...leaf, ecdhCurve }), 200, ecdhCurve);
    assert.equal(await ask(t, ca, { ...leaf, ecdhCurve, maxVersion: "TLSv1.2" }), 200, `${ecdhCurve}, TLS 1.2`);
  }
  for (const ecdhCurve of ["P-521", "X448", "ffdhe2048", "ffdhe8192"]) {
    await assert.rejects(ask(t, ca, { ...leaf, ecdhCurve }), /handshake failure/, ecdhCurve);
  }
});

test("a server of TLS 1.2 may bring no modulus of its own for the key exchange", async (t) => {
  const leaf = await rsaCertificate("localhost");
  const old = { ...leaf, maxVersion: "TLSv1.2" } as const;
  assert.equal(await ask(t, leaf.cert, { ...old, ciphers: "ECDHE-RSA-AES128-GCM-SHA256" }), 200);
  const dhe = { ...old, ciphers: "DHE-RSA-AES128-GCM-SHA256", dhparam: "auto" };
  await assert.rejects(ask(t, leaf.cert, dhe), /handshake failure/);
});

test("a server of TLS 1.2 gets one handshake for each connection", async (t) => {
  const { ca, leaf } = await testCertificate();
  let again = 0;
  const answer: RequestListener = ({ socket }, response) => {
    (socket as TLSSocket).renegotiate({ rejectUnauthorized: false }, (error) => {
      if (error === null) again++;
      response.end();
    });
  };
  await ask(t, ca, { ...leaf, maxVersion: "TLSv1.2" }, answer).catch(() => {});
  assert.equal(again, 0);
});

test("no TLS session is resumed: each connection verifies the certificate", async (t) => {
  const { ca, leaf } = await testCertificate();
  const reused: boolean[] = [];
  const server = createServer(leaf, ({ socket }, response) => {
    reused.push((socket as TLSSocket).isSessionReused());
    response.setHeader("connection", "close").end();
  });
  const url = new URL(`https://localhost:${await listening(t, server)}`);
  const client = new HttpsClient();
  t.after(() => client.close());
  for (let count = 0; count < 3; count++) {
    const signal = new AbortController().signal;
    await client.send({ url, method: "GET", headers: {}, tls: { ca }, signal });
  }
  assert.deepEqual(reused, [false, false, false]);
});
