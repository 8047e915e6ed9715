import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import tls, { type TLSSocket } from "node:tls";
import { until } from "../basics/testing/wait.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { verifyPeer } from "../tls/identity.ts";
import type { Acceptor } from "./acceptor.ts";
import { UNRECOGNIZED_NAME_ALERT } from "./client-hello.ts";
import { tlsListener, type VirtualHost } from "./listeners.ts";
import { helloFor } from "./testing/client-hello.ts";

interface NamedHost extends VirtualHost {
  readonly name: string;
  readonly authority: Authority;
  readonly client: CertificateAndKey;
}

const hosts = new Map<string, NamedHost>();
const secured: { socket: TLSSocket; host: NamedHost }[] = [];
const failed: string[] = [];
let listener: Acceptor;
let port: number;

before(async () => {
  for (const name of ["blue", "red"]) {
    const authority = await Authority.create(name);
    const { cert, key } = await authority.issue({ cn: name, names: [`${name}.example`], usage: "server" });
    const client = await authority.issue({ cn: `${name}-client`, usage: "client" });
    hosts.set(`${name}.example`, {
      name,
      authority,
      client,
      tls: { cert, key, ca: authority.cert, notAfter: new Date(Date.now() + 3_600_000) },
    });
  }
  listener = tlsListener<NamedHost>({
    hosts: { single: undefined, find: (serverName) => hosts.get(serverName ?? "") },
    handshakeTimeoutMs: 10_000,
    maxHandshakes: 100,
    maxWaitingHandshakes: 100,
    backlog: 128,
    onConnection: ({ socket, host }) => secured.push({ socket, host }),
    onHandshakeFailed: ({ error }) => failed.push(error.message),
    onError: (error) => failed.push(error.message),
  });
  port = (await listener.listen(0, "127.0.0.1")).port;
});

after(() => listener.destroyAll());

/** As the client of a cluster. */
function dial({ client, authority }: NamedHost, servername: string): TLSSocket {
  return tls
    .connect({ port, host: "127.0.0.1", servername, ca: authority.cert, rejectUnauthorized: false, ...client })
    .on("error", () => {});
}

async function next(count: number): Promise<{ socket: TLSSocket; host: NamedHost }> {
  await until(() => secured.length >= count);
  return secured[count - 1] ?? assert.fail();
}

test("each name shows its own certificate and knows its own clients", async () => {
  for (const name of ["blue", "red"]) {
    const count = secured.length + 1;
    const socket = dial(hosts.get(`${name}.example`) ?? assert.fail(), `${name.toUpperCase()}.Example.`);
    const accepted = await next(count);
    assert.equal(accepted.host.name, name);
    assert.equal(socket.getPeerX509Certificate()?.subject, `CN=${name}`);
    assert.equal(verifyPeer(accepted.socket, undefined).identity?.cn, `${name}-client`);
    socket.destroy();
  }
});

const REFUSED: readonly [name: string, hello: () => Buffer, says: RegExp][] = [
  ["a name that is nobody's", () => helloFor("green.example"), /no cluster has the server name "green\.example"/],
  ["no name", () => helloFor(undefined), /asks for no server name/],
  ["a name that every object has", () => helloFor("constructor"), /no cluster has the server name "constructor"/],
  ["what is not TLS", () => Buffer.from("GET / HTTP/1.1\r\n\r\n"), /does not begin as TLS/],
];
for (const [name, hello, says] of REFUSED) {
  test(`${name} is refused with the alert unrecognized_name and sees no certificate`, async () => {
    const before = failed.length;
    const socket = connect({ port, host: "127.0.0.1" }).on("error", () => {});
    const answers: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => answers.push(chunk));
    socket.write(hello());
    await once(socket, "close");
    assert.deepEqual(Buffer.concat(answers), UNRECOGNIZED_NAME_ALERT);
    assert.equal(failed.length, before + 1);
    assert.match(failed.at(-1) ?? "", says);
  });
}
