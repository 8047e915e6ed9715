import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, connect as dial } from "node:net";
import { test } from "node:test";
import tls, { type SecureVersion, type TLSSocket } from "node:tls";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { shownCertificate } from "./session.ts";

/** The server's end of a TLS connection whose client shows this certificate, or none. */
async function accepted(version: SecureVersion, shown: Partial<CertificateAndKey>) {
  const authority = await Authority.create("ca");
  const own = await authority.issue({ cn: "server", usage: "server" });
  const server = tls.createServer({ ...own, ...{ ca: authority.cert, requestCert: true, rejectUnauthorized: false } });
  const net = createServer((raw) => server.emit("connection", raw)).listen(0, "127.0.0.1");
  await once(net, "listening");
  const secured = once(server, "secureConnection");
  const raw = dial((net.address() as AddressInfo).port, "127.0.0.1");
  const versions = { minVersion: version, maxVersion: version };
  const client = tls.connect({ socket: raw, rejectUnauthorized: false, ...versions, ...shown }).on("error", () => {});
  const [socket] = (await secured) as [TLSSocket];
  socket.on("error", () => {});
  const end = (): void => {
    for (const each of [client, socket]) each.destroy();
    net.close();
  };
  return { socket, [Symbol.dispose]: end };
}

for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
  for (const names of [1, 40, 700]) {
    test(`the certificate in a session is the one that was shown: ${version}, ${names} names`, async () => {
      const all = Array.from({ length: names }, (_, at) => `name-${at}.example`);
      const { cert, key } = await (await Authority.create("other")).issue({
        cn: "client",
        usage: "client",
        names: all,
      });
      using it = await accepted(version, { cert, key });
      const shown = shownCertificate(it.socket);
      assert.ok(shown !== undefined);
      assert.ok(shown.equals(it.socket.getPeerCertificate(false).raw));
    });
  }

  test(`without a certificate there is none in the session: ${version}`, async () => {
    using it = await accepted(version, {});
    assert.equal(shownCertificate(it.socket), undefined);
  });
}

test("a session that cannot be read has no certificate", () => {
  const socket = (bytes: Buffer | undefined) => ({ getSession: () => bytes }) as TLSSocket;
  const whole = Buffer.from("300702010104003000", "hex");
  for (const session of [undefined, Buffer.alloc(0), Buffer.from([0x30]), whole, whole.subarray(0, 5)]) {
    assert.equal(shownCertificate(socket(session)), undefined);
  }
  const claims = ["3084000000", "3003a38500", "3004a3030102", "3004a3820100", "2004a3020102", "3004a302010200"];
  for (const hex of claims) assert.equal(shownCertificate(socket(Buffer.from(hex, "hex"))), undefined, hex);
  assert.deepEqual(shownCertificate(socket(Buffer.from("3007020101a3020102", "hex"))), Buffer.from([1, 2]));
});
