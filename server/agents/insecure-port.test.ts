import assert from "node:assert/strict";
import { connect as dialPlain } from "node:net";
import { after, before, test } from "node:test";
import { connect as dialTls } from "node:tls";
import { until } from "../../shared/basics/testing/wait.ts";
import { dialAgain } from "../../shared/link/dial.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { encodeProxyV2 } from "../../shared/listen/preface.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { Balancer } from "../testing/balancer.ts";
import {
  bearer,
  insecurePort,
  OPEN,
  OTHER,
  request,
  said,
  tokenOf,
  tokensOf,
  trustTokens,
} from "../testing/insecure-port.ts";
import { collect } from "../testing/server.ts";
import { type AgentWords, agentAt, answerOf, dialOptionsOf, Tenants, unixCallerAt } from "../testing/tenants.ts";

/** blue and red take tokens of an issuer each; blue also stands behind a wildcard. */
let tenants: Tenants;
let balancer: Balancer;

before(async () => {
  tenants = await Tenants.create(["blue", "red"]);
  for (const name of ["blue", "red"]) await trustTokens(tenants, name);
  await tenants.get("blue").write({ agents: { ...tokensOf("blue"), sni: ["blue.example", "*.blues.example"] } });
  await tenants.start({ ...OPEN, linkGraceMs: 5_000 });
  balancer = await Balancer.start(insecurePort(tenants.server), ["blue.example", "red.example", "*.blues.example"]);
});

after(async () => {
  await balancer[Symbol.asyncDispose]();
  await tenants[Symbol.asyncDispose]();
});

async function agentBehind(through: Balancer, more: Partial<AgentWords> = {}) {
  const token = await tokenOf("blue");
  return agentAt(tenants.server, "blue", { at: tenants.get("blue"), token, through, ...more });
}

// ── who is let in ────────────────────────────────────────────────────────────────────────────────────────────────────

for (const host of ["blue.example", "BLUE.example", "one.blues.example"]) {
  test(`a token agent behind a balancer that ends TLS is let in under the Host ${host}`, async () => {
    const agent = await agentBehind(balancer, { host });
    assert.match(await answerOf(await unixCallerAt(tenants.get("blue").uds)), /^HTTP\/1.1 200 .*blue$/s);
    agent.session.destroy();
  });
}

test("a link goes on over either port, for the same identity only", async () => {
  const [at, token] = [tenants.get("blue"), await tokenOf("blue")];
  const words = { at, token, agentId: "moves" };
  const { lines } = tenants.server;
  const logged = lines.length;
  const { link, welcome: first, session } = await agentAt(tenants.server, "blue", { ...words, through: balancer });
  const key = LinkKey.parse(first.key);
  for (const way of [{}, { through: balancer }]) {
    const resumeAs = async (sub?: string) => {
      const [token, resume] = [
        await tokenOf("blue", sub === undefined ? {} : { sub }),
        key.prove({ link: link.id, received: link.received }),
      ];
      return dialAgain(dialOptionsOf(tenants.server, { ...words, ...way, token, resume }));
    };
    await assert.rejects(resumeAs(OTHER), (error) => error instanceof LinkRefused && /another/.test(error.message));
    link.acks.hold();
    const named = link.received;
    const { carrier, resumed } = await resumeAs();
    assert.ok(key.isAnswer(link.id, resumed));
    link.resume(carrier, "server", { peerReceived: resumed.received, named });
    link.acks.now();
    assert.match(await answerOf(await unixCallerAt(at.uds)), /^HTTP\/1.1 200 .*blue$/s);
  }
  assert.equal(lines.slice(logged).filter(({ msg }) => msg === "tunnel opened").length, 1);
  session.destroy();
});

test("a token of another cluster than the Host's is refused, whichever Host it comes with", async () => {
  for (const [token, host] of [
    ["blue", "red.example"],
    ["red", "blue.example"],
    ["red", "x.blues.example"],
  ] as const) {
    const answer = await said(insecurePort(tenants.server), request(`Host: ${host}`, await bearer(token)));
    assert.match(answer, /^HTTP\/1\.1 401 .*is for "culvert-\w+", not for/s, `${token} at ${host}`);
  }
});

test("a header that names a client certificate is believed on neither port, and logged once for each", async () => {
  const { addresses, lines } = tenants.server;
  const { sni, authority, agent } = tenants.get("red");
  const text = request(
    `Host: ${sni}`,
    `X-Forwarded-Client-Cert: Hash=1;Cert="${encodeURIComponent(agent.cert)}";Subject="CN=agent,O=agents:red"`,
    `X-SSL-Client-Cert: ${encodeURIComponent(agent.cert)}`,
    "X-SSL-Client-Verify: SUCCESS",
    "X-SSL-Client-DN: CN=agent,O=agents:red",
    `Client-Cert: :${Buffer.from(agent.cert).toString("base64")}:`,
  );
  for (let time = 0; time < 2; time++) {
    assert.match(
      await said(insecurePort(tenants.server), text),
      /^HTTP\/1\.1 401 .*TLS ends in front of it, and no token/s,
    );
    const { port = 0 } = addresses.agents ?? {};
    const socket = dialTls({ port, host: "127.0.0.1", servername: sni, ca: authority.cert }).on("error", () => {});
    assert.match(await answerOf(socket, text), /^HTTP\/1\.1 401 .*no client certificate was sent/s);
  }
  const told = lines.filter(({ msg }) => msg.startsWith("a header that names a client certificate is not believed"));
  assert.deepEqual(
    told.map(({ header }) => header),
    ["x-forwarded-client-cert", "x-forwarded-client-cert"],
  );
});

test("an only cluster without names is found under any Host, and tokens alone need no certificate of the server", async () => {
  await using mine = await Tenants.create(["blue"]);
  await trustTokens(mine, "blue");
  const none = { cert: undefined, key: undefined, ca: undefined };
  await mine.get("blue").write({ agents: { ...none, ...tokensOf("blue"), sni: [], identities: [] } });
  const server = await mine.start({ ...OPEN, clusterCert: "", clusterKey: "", clusterCaCert: "" });
  assert.equal(server.addresses.agents, undefined);
  for (const host of ["anything.example:443", "10.0.0.1", "[::1]:8080"]) {
    const answer = await said(insecurePort(server), request(`Host: ${host}`, "Authorization: Bearer x.y.z"));
    assert.match(answer, /^HTTP\/1\.1 401 /, host);
  }
  const socket = dialPlain({ port: insecurePort(server), host: "127.0.0.1" });
  const reads = collect(socket.on("error", () => {}));
  socket.write(request("Host: anything", await bearer("blue")));
  await until(() => /^HTTP\/1\.1 101 /.test(reads.join("")));
  socket.destroy();
});

test("a cluster at its limit of handshakes is told 429 there, too, since what is inside may be one", async () => {
  await using mine = await Tenants.create(["blue"]);
  await mine.get("blue").write({ limits: { handshakesPerSecond: 1 } });
  const server = await mine.start(OPEN);
  const answers: string[] = [];
  for (let time = 0; time < 4; time++) answers.push(await said(insecurePort(server), request("Host: blue.example")));
  assert.match(answers.at(-1) ?? "", /^HTTP\/1\.1 429 .*\r\nretry-after: 1\r\n.*limits\.handshakesPerSecond/is);
  assert.doesNotMatch(answers.at(-1) ?? "", /TLS/);
});

// ── what is said there ───────────────────────────────────────────────────────────────────────────────────────────────

const CLIENT_HELLO = Buffer.concat([Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]), Buffer.alloc(505)]);
const MISPLACED: readonly [what: string, text: () => string | Buffer, answer: RegExp][] = [
  ["an empty Host", () => request("Host:"), /^HTTP\/1\.1 400 .*one Host/s],
  ["two Hosts", () => request("Host: blue.example", "host: red.example"), /^HTTP\/1\.1 400 .*one Host/s],
  [
    "a Host that is nobody's",
    () => request("Host: green.example"),
    /^HTTP\/1\.1 421 .*no cluster has the name "green/s,
  ],
  ["a Host below a wildcard's label", () => request("Host: a.b.blues.example"), /^HTTP\/1\.1 421 /],
  ["an address as Host", () => request("Host: 127.0.0.1:443"), /^HTTP\/1\.1 421 /],
  ["a Host of control bytes", () => request("Host: blue.example\u007f"), /^HTTP\/1\.1 4(?:00|21) /],
  ["__proto__ as Host", () => request("Host: __proto__"), /^HTTP\/1\.1 421 /],
  [
    "a target that names another host",
    () => request("Host: blue.example").replace("/c", "http://red.example/c"),
    /^HTTP\/1\.1 401 .*"?/s,
  ],
  ["a ClientHello", () => CLIENT_HELLO, /^HTTP\/1\.1 400 .*this is TLS, and HTTP is spoken here/s],
  ["the first byte of a ClientHello", () => CLIENT_HELLO.subarray(0, 1), /^HTTP\/1\.1 400 .*this is TLS/s],
  ["garbage", () => "no HTTP at all\r\n\r\n", /^HTTP\/1\.1 400 .*no HTTP\/1\.1/s],
  ["HTTP/2", () => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", /^HTTP\/1\.1 505 .*HTTP\/2, and konnectivity-agents/s],
  [
    "a PROXY header, version 1",
    () => "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n\r\n",
    /^HTTP\/1\.1 400 .*this is a PROXY header/s,
  ],
  ["a PROXY header, version 2", () => encodeProxyV2(undefined), /^HTTP\/1\.1 400 .*this is a PROXY header/s],
  ["a header of 64 KiB", () => request("Host: blue.example", `X: ${"x".repeat(65_536)}`), /^HTTP\/1\.1 431 /],
  ["a CONNECT", () => "CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: blue.example\r\n\r\n", /^HTTP\/1\.1 401 /],
];
for (const [what, text, answer] of MISPLACED) {
  test(`${what} on the insecure port is answered with a sentence, logged and counted`, async () => {
    const { lines } = tenants.server;
    const logged = lines.length;
    assert.match(await said(insecurePort(tenants.server), text()), answer);
    assert.ok(lines.slice(logged).some(({ msg }) => msg === "agent refused"));
  });
}
