import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import tls, { type SecureVersion } from "node:tls";
import { tlsListener, type VirtualHost } from "../listen/listeners.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { type TrustCase, trustCases } from "../pki/testing/chains.ts";
import { ClientTrust } from "../tls/client-trust.ts";
import { verifyPeer } from "../tls/identity.ts";
import { probeServer } from "./dial.ts";
import { InnerServers } from "./inner-tls.ts";
import { dial, link, SOURCE, TIMEOUT_MS } from "./testing/inner-ends.ts";

const VERSIONS = ["TLSv1.2", "TLSv1.3"] as const satisfies readonly SecureVersion[];

/** Everything whose certificate is not asked about. */
const own = await Authority.create("own");
const ownServer = await own.issue({ cn: "own", names: ["localhost", "server.example"], usage: "server" });
const cases = await trustCases();

/** A listener that verifies clients by this CA file, and the port that it has. */
async function listener(t: TestContext, ca: string) {
  const host: VirtualHost = { tls: { ...ownServer, ca, notAfter: new Date() } };
  const pending: ((verification: ReturnType<typeof verifyPeer>) => void)[] = [];
  const acceptor = tlsListener({
    hosts: { single: host, find: () => host },
    handshakeTimeoutMs: 60_000,
    maxHandshakes: 100,
    maxWaitingHandshakes: 100,
    backlog: 128,
    onConnection: ({ socket, verifiedBy }) => pending.shift()?.(verifyPeer(socket, verifiedBy)),
    onHandshakeFailed: ({ error }) => pending.shift()?.({ refusal: error.message }),
    onError: (error) => assert.fail(error),
  });
  const { port } = await acceptor.listen(0, "127.0.0.1");
  t.after(() => acceptor.destroyAll());
  const next = (): Promise<ReturnType<typeof verifyPeer>> => new Promise((resolve) => pending.push(resolve));
  return { port, next };
}

/** The listener's verdict on this client; the CRLs' search for a path has to agree. */
async function verdict(t: TestContext, { ca, shown, what }: TrustCase, maxVersion: SecureVersion, servername: string) {
  const { port, next } = await listener(t, ca);
  const verified = next();
  const client = tls.connect({ port, host: "127.0.0.1", servername, ...shown, maxVersion, rejectUnauthorized: false });
  client.on("error", () => {});
  const { identity } = await verified;
  client.destroy();
  if (identity !== undefined) assert.equal(new ClientTrust(ca).status(identity.chain), "valid", what);
  return identity !== undefined;
}

for (const maxVersion of VERSIONS) {
  for (const servername of ["localhost", ""]) {
    const name = `${maxVersion}, ${servername === "" ? "without" : "with"} a server name`;
    test(`a listener trusts the clients of the CAs in its file, roots or not: ${name}`, async (t) => {
      for (const each of cases) {
        assert.equal(await verdict(t, each, maxVersion, servername), each.isTrusted, each.what);
      }
    });
  }
}

/** A TLS server with this certificate. */
async function serving(t: TestContext, shown: CertificateAndKey, maxVersion: SecureVersion): Promise<number> {
  const server = tls.createServer({ ...shown, maxVersion }, (socket) => socket.on("error", () => {}));
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  return (server.address() as AddressInfo).port;
}

for (const maxVersion of VERSIONS) {
  test(`an agent trusts the servers of the CAs in its file, roots or not: ${maxVersion}`, async (t) => {
    for (const { what, ca, shown, isTrusted } of cases) {
      const port = await serving(t, shown, maxVersion);
      const probe = probeServer({
        host: "localhost",
        address: { host: "127.0.0.1", port },
        port,
        path: "/",
        tls: { ca },
        trust: { ca },
        keepaliveMs: 20_000,
        timeoutMs: TIMEOUT_MS,
      });
      if (isTrusted) await assert.doesNotReject(probe, what);
      else await assert.rejects(probe, /certificate/, what);
    }
  });
}

test("both ends of inner TLS trust the CAs in their files, roots or not", async () => {
  for (const { what, ca, shown, isTrusted } of cases) {
    const toServer = link();
    const ofServer = new InnerServers().accept(
      toServer.server,
      { ...ownServer, ca, notAfter: new Date() },
      TIMEOUT_MS,
      SOURCE,
    );
    const [, { socket }] = await Promise.all([dial(toServer.agent, { ca: own.cert, ...shown }), ofServer]);
    assert.equal(verifyPeer(socket, ca).identity !== undefined, isTrusted, `server: ${what}`);
    const toAgent = link();
    const accepted = new InnerServers()
      .accept(toAgent.server, { ...shown, ca: "", notAfter: new Date() }, TIMEOUT_MS, SOURCE)
      .catch(() => {});
    const dialled = dial(toAgent.agent, { ca }, { host: "localhost" });
    if (isTrusted) await assert.doesNotReject(dialled, `agent: ${what}`);
    else await assert.rejects(dialled, /certificate/, `agent: ${what}`);
    await accepted;
  }
});
