import assert from "node:assert/strict";
import { test } from "node:test";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { tlsFault } from "./proxy-tls.ts";

test("a proxy that is called by an address, and whose certificate has none, is told with the names to call it by", () => {
  const certificate = { subject: {}, subjectaltname: "DNS:proxy.example" } as unknown as PeerCertificate;
  const wrong = checkServerIdentity("10.0.0.1", certificate) ?? assert.fail();
  const proxy = { scheme: "https", host: "10.0.0.1", port: 3128, credentials: undefined } as const;
  const { message } = tlsFault(proxy, wrong);
  assert.match(message, /call the proxy by a name that is in it \(.*no addresses.* only DNS:proxy\.example\)$/);
});
