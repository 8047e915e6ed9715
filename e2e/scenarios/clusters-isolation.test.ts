import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { fetchText, type TestServer, within } from "../../server/testing/server.ts";
import {
  type AgentWords,
  agentAt,
  answerOf,
  callerAt,
  callerBehind,
  Tenants,
  unixCallerAt,
} from "../../server/testing/tenants.ts";
import { ISSUER, Issuer, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { encodeProxyV2 } from "../../shared/listen/preface.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

const NAMES = ["blue", "red", "gold", "lime"] as const;

/** blue and red have a CA each; gold and lime share one, and names tell them apart. */
let tenants: Tenants;
/** Each cluster's agent, with the link that others would like to have. */
const agents = new Map<string, Awaited<ReturnType<typeof agentAt>>>();

before(async () => {
  tenants = await Tenants.create(["blue", "red"], ["gold", "lime"]);
  await tenants.start({ linkGraceMs: 5_000 });
  for (const name of NAMES) {
    const at = tenants.get(name);
    agents.set(name, await agentAt(tenants.server, name, { at, by: at.agent, agentId: "the-same" }));
  }
});

after(async () => {
  for (const { session } of agents.values()) session.destroy();
  await tenants[Symbol.asyncDispose]();
});

test("one target name leads to another target in each cluster, over TLS and over the clusters' unix sockets", async () => {
  for (const name of NAMES) {
    const { sni, caller, uds } = tenants.get(name);
    assert.match(
      await answerOf(await callerAt(tenants.server, sni, caller)),
      new RegExp(`^HTTP/1.1 200 .*${name}$`, "s"),
    );
    assert.match(await answerOf(await unixCallerAt(uds)), new RegExp(`^HTTP/1.1 200 .*${name}$`, "s"));
  }
});

/** A pair that belongs together, and whose key is too short for OpenSSL's default level. */
function weakPair(): { readonly cert: string; readonly key: string } {
  const both = execFileSync(
    "openssl",
    ["req", "-x509", "-newkey", "rsa:512", "-nodes", "-keyout", "-", "-subj", "/CN=weak", "-days", "2"],
    { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] },
  );
  const part = (kind: string) =>
    new RegExp(`-----BEGIN ${kind}-----[^]*?-----END ${kind}-----\n`).exec(both)?.[0] ?? "";
  return { cert: part("CERTIFICATE"), key: part("PRIVATE KEY") };
}

// ── crossings ────────────────────────────────────────────────────────────────────────────────────────────────────────

interface Crossing {
  readonly as: string;
  readonly at: string;
  readonly role?: "caller" | "agent" | "nobody";
  readonly status: number;
  readonly says: RegExp;
}

const UNKNOWN_CA = /no client certificate was sent|not signed by a CA/;
const CALLER_CROSSINGS: readonly Crossing[] = [
  { as: "blue", at: "red", status: 407, says: UNKNOWN_CA },
  { as: "red", at: "blue", status: 407, says: UNKNOWN_CA },
  { as: "blue", at: "gold", status: 407, says: UNKNOWN_CA },
  { as: "gold", at: "blue", status: 407, says: UNKNOWN_CA },
  { as: "gold", at: "lime", status: 407, says: /not among callers\.identities/ },
  { as: "lime", at: "gold", status: 407, says: /not among callers\.identities/ },
  { as: "gold", at: "gold", role: "agent", status: 407, says: /not among callers\.identities/ },
  { as: "gold", at: "lime", role: "agent", status: 407, says: /not among callers\.identities/ },
  { as: "blue", at: "blue", role: "agent", status: 407, says: /not among callers\.identities/ },
  { as: "blue", at: "blue", role: "nobody", status: 407, says: UNKNOWN_CA },
];
for (const { as, at, role = "caller", status, says } of CALLER_CROSSINGS) {
  test(`a caller with the ${role}'s certificate of ${as} at the name of ${at} is refused, and it is logged`, async () => {
    const tenant = tenants.get(as);
    const by = role === "nobody" ? undefined : role === "agent" ? tenant.agent : tenant.caller;
    const { lines } = tenants.server;
    const logged = lines.length;
    const answer = await answerOf(await callerAt(tenants.server, tenants.get(at).sni, by));
    assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `));
    assert.match(answer, says);
    await until(() =>
      lines.slice(logged).some(({ outcome, reason }) => outcome === "unauthenticated" && says.test(String(reason))),
    );
  });
}

const WORDS: readonly [what: string, lines: string][] = [
  ["a Host of another cluster", "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: red.example\r\n\r\n"],
  ["a target named like another cluster", "CONNECT red.example:443 HTTP/1.1\r\nHost: red.example\r\n\r\n"],
  [
    "headers that name another cluster",
    "CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\nX-Cluster: red\r\nForwarded: host=red.example\r\n\r\n",
  ],
];
for (const [what, lines] of WORDS) {
  test(`${what} leads to the caller's own cluster, over TLS and over the unix socket`, async () => {
    const { sni, caller, uds } = tenants.get("blue");
    assert.match(await answerOf(await callerAt(tenants.server, sni, caller), lines), /blue$/);
    assert.match(await answerOf(await unixCallerAt(uds), lines), /blue$/);
  });
}

for (const name of ["green.example", "", "blue.example.evil", "xblue.example", "__proto__", "constructor"]) {
  test(`a caller who asks for the name "${name}" gets no further than its ClientHello`, async () => {
    const { lines } = tenants.server;
    const logged = lines.length;
    const socket = await callerAt(tenants.server, name, tenants.get("blue").caller);
    assert.equal(socket.getPeerX509Certificate(), undefined, "it was shown a certificate");
    await until(() => lines.slice(logged).some(({ reason }) => /server name/.test(String(reason))));
  });
}

interface AgentCrossing extends Pick<AgentWords, "cluster"> {
  readonly as: string;
  readonly at: string;
  readonly what: string;
  readonly role?: "caller" | "nobody";
  /** Whose link it wants to go on with. */
  readonly steals?: string;
  readonly code: number;
  readonly says: RegExp;
}

const AGENT_CROSSINGS: readonly AgentCrossing[] = [
  { as: "blue", at: "red", what: "another CA", code: 401, says: UNKNOWN_CA },
  { as: "gold", at: "blue", what: "another CA", code: 401, says: UNKNOWN_CA },
  { as: "gold", at: "lime", what: "the same CA and another name", code: 403, says: /not among agents\.identities/ },
  { as: "lime", at: "gold", what: "the same CA and another name", code: 403, says: /not among agents\.identities/ },
  {
    as: "lime",
    at: "lime",
    what: "a caller's certificate",
    role: "caller",
    code: 403,
    says: /not among agents\.identities/,
  },
  { as: "red", at: "red", what: "no certificate", role: "nobody", code: 401, says: UNKNOWN_CA },
  {
    as: "blue",
    at: "blue",
    what: "the word of another cluster",
    cluster: "red",
    code: CloseCode.forbidden,
    says: /belongs to cluster "blue"/,
  },
  {
    as: "gold",
    at: "gold",
    what: "the word of another cluster",
    cluster: "lime",
    code: CloseCode.forbidden,
    says: /belongs to cluster "gold"/,
  },
  {
    as: "blue",
    at: "blue",
    what: "the link of another cluster's agent",
    steals: "red",
    code: CloseCode.unknownLink,
    says: /no such link/,
  },
  {
    as: "gold",
    at: "gold",
    what: "the link of an agent under the same CA",
    steals: "lime",
    code: CloseCode.unknownLink,
    says: /no such link/,
  },
];
for (const { as, at, what, role, steals, code, says, ...words } of AGENT_CROSSINGS) {
  test(`an agent of ${as} at the name of ${at} with ${what} is refused, and it is logged`, async () => {
    const tenant = tenants.get(as);
    const by = role === "nobody" ? undefined : role === "caller" ? tenant.caller : tenant.agent;
    const stolen = steals === undefined ? undefined : agents.get(steals)?.welcome;
    const { lines } = tenants.server;
    const logged = lines.length;
    const refusal = await agentAt(tenants.server, as, {
      ...{ at: tenants.get(at), by, agentId: "the-same" },
      ...words,
      ...(stolen && { resume: LinkKey.parse(stolen.key).prove({ link: stolen.link, received: 0 }) }),
    }).then(
      () => assert.fail("it was let in"),
      (error: unknown) => error,
    );
    assert.ok(refusal instanceof LinkRefused, String(refusal));
    assert.equal(refusal.status ?? refusal.closeCode, code);
    assert.match(refusal.message, says);
    await until(() =>
      lines.slice(logged).some(({ msg, reason }) => /^(agent|resume) refused$/.test(msg) && says.test(String(reason))),
    );
    assert.equal(agents.get(steals ?? as)?.session.closed, false, "the real one is untouched");
  });
}

/** A TCP connection to the agents' port. The function begins TLS on it, and waits until that is up or has failed. */
async function silent(server: TestServer, servername: string): Promise<() => Promise<TLSSocket>> {
  const raw = connect(server.addresses.agents?.port ?? 0, "127.0.0.1").on("error", () => {});
  await once(raw, "connect");
  return async () => {
    const socket = dialTls({ socket: raw, servername, rejectUnauthorized: false }).on("error", () => {});
    await new Promise((resolve) => socket.once("secureConnect", resolve).once("close", resolve));
    return socket;
  };
}

// ── documents that change ────────────────────────────────────────────────────────────────────────────────────────────

describe("documents that change", { concurrency: 4 }, () => {
  test("a cluster that is added is served in two seconds, and its sockets go with it; the others notice nothing", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    await mine.get("red").remove();
    const server = await mine.start();
    const blue = await agentAt(server, "blue", { at: mine.get("blue"), by: mine.get("blue").agent });
    assert.equal((await callerAt(server, "red.example", mine.get("red").caller)).getPeerX509Certificate(), undefined);

    await mine.get("red").write();
    await until(() => existsSync(mine.get("red").uds));
    const red = await agentAt(server, "red", { at: mine.get("red"), by: mine.get("red").agent });
    assert.match(await answerOf(await callerAt(server, "red.example", mine.get("red").caller)), /red$/);

    await mine.get("red").remove();
    await within(red.closed, "the agent of a removed cluster is let go");
    await until(() => !existsSync(mine.get("red").uds));
    assert.equal((await callerAt(server, "red.example", mine.get("red").caller)).getPeerX509Certificate(), undefined);
    assert.equal(blue.session.closed, false);
    assert.match(await answerOf(await unixCallerAt(mine.get("blue").uds)), /blue$/);
    blue.session.destroy();
  });

  test("a client whose ClientHello comes late is led by the names that its port has by then", async () => {
    await using mine = await Tenants.create(["blue"]);
    const blue = mine.get("blue");
    await blue.write({ agents: { sni: [] } });
    const server = await mine.start();
    const early = await Promise.all(["blue.example", "red.example"].map((name) => silent(server, name)));
    await blue.write();
    await until(() => server.lines.some(({ msg }) => msg === "cluster changed"));
    const [known, unknown] = await Promise.all(early.map((greet) => greet()));
    assert.notEqual(known?.getPeerX509Certificate(), undefined);
    assert.equal(unknown?.getPeerX509Certificate(), undefined);
    known?.destroy();
  });

  test("a document that breaks keeps its old version, is named in readyz, and leaves the server ready", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    const server = await mine.start();
    await mine.get("red").write({ limits: { streems: 4 } });
    const readyz = async () => fetchText(server.addresses.admin?.port, "/readyz?verbose");
    await until(async () => /red\.yaml.*streems/.test((await readyz()).text));
    assert.equal((await readyz()).status, 200);
    const red = await agentAt(server, "red", { at: mine.get("red"), by: mine.get("red").agent });
    await mine.get("red").write();
    await until(async () => !/streems/.test((await readyz()).text));
    assert.equal(red.session.closed, false);
    red.session.destroy();
  });

  test("an agent that is no longer among the identities ends at once, and none of another cluster", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    const server = await mine.start();
    const blue = await agentAt(server, "blue", { at: mine.get("blue"), by: mine.get("blue").agent });
    const red = await agentAt(server, "red", { at: mine.get("red"), by: mine.get("red").agent });
    await mine.get("red").write({ agents: { identities: ["O=agents:crimson"] } });
    await within(red.closed, "the agent that is no longer trusted");
    await until(() => server.lines.some(({ reason }) => /no longer among agents\.identities/.test(String(reason))));
    assert.equal(blue.session.closed, false);
    blue.session.destroy();
  });

  test("a suspended cluster lets nobody in, and is back as it was", async () => {
    await using mine = await Tenants.create(["blue"]);
    const server = await mine.start();
    const before = await agentAt(server, "blue", { at: mine.get("blue"), by: mine.get("blue").agent });
    await mine.get("blue").write({ suspended: true });
    await within(before.closed, "the agent of a suspended cluster");
    const at = mine.get("blue");
    const { uds, agent } = at;
    assert.match(await answerOf(await unixCallerAt(uds)), /^HTTP\/1.1 403 cluster "blue" is suspended/);
    await assert.rejects(agentAt(server, "blue", { at, by: agent }), /suspended/);
    await mine.get("blue").write();
    await until(async () => /^HTTP\/1.1 (?!403)/.test(await answerOf(await unixCallerAt(uds))));
    (await agentAt(server, "blue", { at, by: agent })).session.destroy();
  });

  test("targets and limits of a document hold for its callers, with Retry-After where waiting helps", async () => {
    await using mine = await Tenants.create(["blue"]);
    await mine.get("blue").write({ deny: ["169.254.0.0/16"], limits: { connectsPerSecond: 1 } });
    const server = await mine.start();
    const agent = await agentAt(server, "blue", { at: mine.get("blue"), by: mine.get("blue").agent });
    const ask = async (target: string) =>
      answerOf(await unixCallerAt(mine.get("blue").uds), `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
    assert.match(await ask("169.254.169.254:80"), /^HTTP\/1.1 403 /);
    const answers = [];
    for (let count = 0; count < 6; count++) answers.push(await ask("10.0.0.1:80"));
    const limited = answers.filter((answer) => /^HTTP\/1.1 429 /.test(answer));
    assert.ok(limited.length > 0, answers.join("\n"));
    assert.match(limited[0] ?? "", /\r\nRetry-After: \d+\r\n/);
    agent.session.destroy();
  });

  test("clusters of which one would let in the other's certificates stop the start, and change nothing later", async () => {
    await using mine = await Tenants.create(["blue"], ["gold", "lime"]);
    await mine.get("lime").write({ agents: { identities: [] } });
    await assert.rejects(mine.start(), /agents\.ca without agents\.identities overlaps .* of cluster "gold"/);
    await mine.get("lime").write();
    const server = await mine.start();
    await mine.get("lime").write({ agents: { identities: [] } });
    await until(async () =>
      /agents\.identities/.test((await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text),
    );
    const { agent } = mine.get("gold");
    await assert.rejects(agentAt(server, "lime", { at: mine.get("lime"), by: agent }), /not among agents\.identities/);
  });

  test("a CA in one cluster's document that is the flags' CA of another is shared, too", async () => {
    await using mine = await Tenants.create(["blue"], ["gold", "lime"]);
    // gold leaves its CA to the flags, whose file holds the CA that lime's document names.
    await mine.get("gold").write({ agents: { ca: undefined } });
    await mine.get("lime").write({ agents: { identities: [] } });
    const [cert, key, ca] = ["pem", "pem", "ca"].map((end) => join(mine.folder, `gold.${end}`)) as [
      string,
      string,
      string,
    ];
    const flags = { clusterCert: cert, clusterKey: key, clusterCaCert: ca };
    await assert.rejects(
      mine.start(flags),
      /without agents\.identities overlaps agents\.ca \(left out: the server's\) with "O=agents:gold"/,
    );
  });

  test("behind a balancer the source is who the PROXY header says, and only a trusted balancer may say it", async () => {
    await using mine = await Tenants.create(["blue"]);
    const blue = mine.get("blue");
    await blue.write({ callers: { sourceCIDRs: ["192.0.2.0/24"] } });
    const server = await mine.start({
      serverProxyProtocol: "required",
      agentProxyProtocol: "optional",
      proxyProtocolTrustedCidrs: ["127.0.0.1/32"],
    });
    const agent = await agentAt(server, "blue", { at: blue, by: blue.agent });
    const from = async (address: string): Promise<string> => {
      const destination = { address: "198.51.100.1", port: 443 };
      const header = encodeProxyV2({ source: { address, port: 4_711 }, destination });
      return answerOf(await callerBehind(server, header, blue));
    };
    assert.match(await from("192.0.2.9"), /^HTTP\/1.1 200 .*blue$/s);
    assert.match(await from("203.0.113.1"), /^HTTP\/1.1 403 cluster "blue" is not open to 203\.0\.113\.1/);
    assert.ok(
      (await callerAt(server, blue.sni, blue.caller)).getPeerX509Certificate() === undefined,
      "without a header",
    );
    await until(() => server.lines.some(({ reason }) => /no PROXY header, and one is required/.test(String(reason))));
    agent.session.destroy();
  });

  test("a certificate that OpenSSL refuses closes its own virtual host, and the server lives on for the others", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    const { cert, key } = weakPair();
    await writeFile(join(mine.folder, "red.pem"), cert + key);
    const server = await mine.start();
    assert.equal((await callerAt(server, "red.example", mine.get("red").caller)).getPeerX509Certificate(), undefined);
    await until(() =>
      server.lines.some(({ reason }) => /certificate of this virtual host cannot be used/.test(String(reason))),
    );
    const blue = await agentAt(server, "blue", { at: mine.get("blue"), by: mine.get("blue").agent });
    assert.match(await answerOf(await unixCallerAt(mine.get("blue").uds)), /blue$/);
    blue.session.destroy();
  });

  test("a cluster on a unix socket alone stays closed to TLS, also when it is the only one left", async () => {
    await using mine = await Tenants.create([], ["gold", "lime"]);
    await mine
      .get("lime")
      .write({ callers: { sni: [], ca: undefined, cert: undefined, key: undefined, identities: [] } });
    const [serverCert, serverKey, serverCaCert] = ["pem", "pem", "ca"].map((end) => join(mine.folder, `gold.${end}`));
    const server = await mine.start({ serverCert, serverKey, serverCaCert } as object);
    await mine.get("gold").remove();
    await until(() => !existsSync(mine.get("gold").uds));
    for (const name of ["gold.example", "lime.example", "x"]) {
      const socket = await callerAt(server, name, mine.get("gold").caller);
      assert.equal(socket.getPeerX509Certificate(), undefined, name);
    }
  });

  test("an agent whose CA is replaced ends, also one that connects meanwhile; a new certificate alone ends none", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    const server = await mine.start({ linkGraceMs: 5_000, handshakeTimeoutMs: 30_000 });
    const red = mine.get("red");
    const other = await agentAt(server, "red", { at: red, by: red.agent });
    const { cert } = await red.renewCertificate();
    await until(async () => {
      const shown = (await callerAt(server, "red.example", red.caller)).getPeerX509Certificate();
      return shown?.fingerprint256 === new X509Certificate(cert).fingerprint256;
    });

    const at = mine.get("blue");
    const agent = await agentAt(server, "blue", { at, by: at.agent });
    const stock = dialTls({
      ...{ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1", servername: at.sni, ca: at.authority.cert },
      ...at.agent,
    }).on("error", () => {});
    await once(stock, "secureConnect");
    await writeFile(join(mine.folder, "blue.ca"), mine.get("red").authority.cert);
    await until(() => server.lines.some(({ msg, cluster }) => msg === "tunnel lost" && cluster === "blue"));
    // Blue's change came after red's: whoever of red had to prove himself would be gone as well.
    assert.equal(other.session.closed, false);
    other.session.destroy();
    assert.match(String(await agent.closed), /has not come back to prove itself|closed/);
    const answer = await answerOf(stock, `GET /culvert/v1/tunnel HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 503 .*changed during the handshake/s);
  });

  test("two clusters that would take the same tokens are not both served, and a fault of tokens is reported until it is removed", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    const issuer = await Issuer.create();
    const jwt = { issuer: ISSUER, audience: "culvert", jwks: "keys.jwks", subjects: [SUBJECT] };
    const server = await mine.start();
    const readyz = async () => (await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text;
    await mine.get("blue").write({ agents: { token: { jwt } } });
    await until(async () => /keys\.jwks/.test(await readyz()));
    await writeFile(join(mine.folder, "keys.jwks"), JSON.stringify(await issuer.keySet()));
    await mine.get("blue").write({ agents: { token: { jwt } }, limits: { streams: 9 } });
    await until(async () => !/keys\.jwks/.test(await readyz()));
    const agent = await agentAt(server, "blue", { at: mine.get("blue"), token: await issuer.token() });
    await mine.get("red").write({ agents: { token: { jwt } } });
    await until(async () =>
      /agents\.token\.jwt .* is taken by cluster "blue" .*: give each cluster an audience/.test(await readyz()),
    );
    agent.session.destroy();
  });

  test("what opens one cluster opens no other, however differently two documents say whom they trust", async () => {
    await using mine = await Tenants.create(["blue", "red"]);
    const [blue, red] = [mine.get("blue"), mine.get("red")];
    const issuer = await Issuer.create();
    for (const name of ["blue", "red"]) {
      await writeFile(join(mine.folder, `${name}.jwks`), JSON.stringify(await issuer.keySet()));
    }
    await writeFile(join(mine.folder, "red.ca"), (await certificateOf({ cn: "blue", keyOf: blue.authority })).cert);
    const trust = (name: string, subject: string) => ({
      token: { jwt: { issuer: ISSUER, audience: "culvert", jwks: `${name}.jwks`, subjects: [subject] } },
    });
    await blue.write({ agents: trust("blue", SUBJECT) });
    await red.remove();
    const server = await mine.start();
    const faults = async () => (await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text;

    await red.write({
      agents: trust("red", "system:serviceaccount:*:agent"),
      callers: { identities: ["O=callers:*"] },
    });
    await until(async () => /red\.yaml: cluster "red": .*cluster "blue" \(\S+blue\.yaml\)/.test(await faults()));
    const token = await issuer.token();
    await assert.rejects(agentAt(server, "red", { at: red, token }), "an agent of blue is not let in as one of red");
    const caller = await callerAt(server, red.sni, blue.caller);
    assert.equal(caller.getPeerX509Certificate(), undefined, "nor is a caller: red is not served");

    const agent = await agentAt(server, "blue", { at: blue, token });
    assert.match(await answerOf(await callerAt(server, blue.sni, blue.caller)), /^HTTP\/1.1 200 .*blue$/s);
    agent.session.destroy();
  });
});
