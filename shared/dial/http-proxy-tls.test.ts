import assert from "node:assert/strict";
import { test } from "node:test";
import { checkServerIdentity, type PeerCertificate, type TLSSocket } from "node:tls";
import { tlsFault } from "./http-proxy-connection.ts";
import { OK } from "./testing/guarded-proxy.ts";
import { faultOf, open, ScriptedProxy, testCertificates, withoutVerification } from "./testing/scripted-proxy.ts";

test("a proxy without its address in its certificate is a fault that lists the names in the certificate", () => {
  const certificate = { subject: {}, subjectaltname: "DNS:proxy.example" } as unknown as PeerCertificate;
  const wrong = checkServerIdentity("10.0.0.1", certificate) ?? assert.fail();
  const proxy = { scheme: "https", host: "10.0.0.1", port: 3128, credentials: undefined } as const;
  const { message } = tlsFault(proxy, wrong);
  assert.match(
    message,
    /call the proxy by a name that is in it \(the certificate is for proxy\.example, not for 10\.0\.0\.1\)$/,
  );
});

test("a proxy's certificate is verified even with NODE_TLS_REJECT_UNAUTHORIZED=0", async (t) => {
  const { server } = await testCertificates();
  await using proxy = await ScriptedProxy.start({
    tls: server,
    onRequest: (_request, socket) => void socket.write(OK),
  });
  withoutVerification(t);
  const fault = await faultOf(open(proxy));
  assert.equal(fault.fault, "proxy_tls", fault.message);
  assert.equal(proxy.requests.length, 0);
});

test("a proxy that speaks HTTP/2, too, learns in the handshake that it is HTTP/1.1 here", async () => {
  const { ca, server } = await testCertificates();
  const chosen: unknown[] = [];
  await using proxy = await ScriptedProxy.start({
    tls: { ...server, ALPNProtocols: ["h2", "http/1.1"] },
    onConnection: (socket) => chosen.push((socket as TLSSocket).alpnProtocol),
    onRequest: (_request, socket) => void socket.write(OK),
  });
  (await open(proxy, { tls: { ca: [ca] } })).destroy();
  assert.deepEqual(chosen, ["http/1.1"]);
});
