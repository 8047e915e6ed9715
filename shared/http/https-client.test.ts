import assert from "node:assert/strict";
import { createServer } from "node:https";
import type { Socket } from "node:net";
import { test } from "node:test";
import { listening } from "../basics/testing/wait.ts";
import { testCertificate } from "../link/testing/ends.ts";
import { Authority } from "../pki/certificates.ts";
import { failureOf, HttpsClient } from "./https-client.ts";

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
