import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { after, before, type TestContext, test } from "node:test";
import type { StepName } from "../../agent/doctor/report.ts";
import { serve } from "../../shared/dial/testing/pac-server.ts";
import { type ProxyScript, ScriptedProxy } from "../../shared/dial/testing/scripted-proxy.ts";
import { UNRECOGNIZED_NAME_ALERT } from "../../shared/listen/client-hello.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import {
  asAgent,
  assertBlamed,
  type Blame,
  type DoctorChange,
  type Examined,
  examined,
  type Place,
  site,
} from "../harness/doctor.ts";
import { Middlebox } from "../harness/middlebox.ts";
import { blackHoleTarget, freePort } from "../harness/targets/absent.ts";
import { startWorld, type World } from "../harness/world.ts";

const DAY = 86_400_000;

/** Of `here` unless another world is named. */
function blames(
  change: DoctorChange,
  { world = here, ...blame }: Blame & { readonly world?: Place },
): Promise<Examined> {
  return assertBlamed(world, change, blame);
}

function detailOf({ steps }: Examined, name: StepName): string {
  return steps.find(({ step }) => step === name)?.detail ?? "";
}

/** One server for all: nobody changes it. */
let here: World<never>;
before(async () => {
  here = await startWorld({ agents: 0 });
});
after(() => here[Symbol.asyncDispose]());

/** A certificate for 127.0.0.1, of the world's CA unless another one is named. */
function leafOf({
  by,
  ...times
}: {
  by?: Authority;
  notBefore?: Date;
  notAfter?: Date;
} = {}): Promise<CertificateAndKey> {
  return (by ?? here.pki.clusterAuthority).issue({ cn: "fake", names: ["127.0.0.1"], usage: "server", ...times });
}

async function tcp(onConnection: (socket: Socket) => void) {
  const server = createServer((socket) => onConnection(socket.on("error", () => {})));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { port, [Symbol.dispose]: () => server.close() };
}

test("1: a name that does not resolve", async () => {
  await blames(
    { server: ["wss://no-such-host.invalid"] },
    {
      ...{ step: "dns", culprit: "dns", says: /^The name of no-such-host\.invalid:443 does not resolve here/ },
      agent: /"no-such-host\.invalid" .*does not resolve/,
    },
  );
});

test("2: a port where nobody listens", async () => {
  const at = `127.0.0.1:${await freePort()}`;
  await blames(
    { server: [`wss://${at}`] },
    {
      ...{ step: "tcp", culprit: "refused", says: new RegExp(`^The connection to ${at} is refused`) },
      agent: new RegExp(`${at} refused the connection`),
    },
  );
});

test("3: a firewall that swallows packets", async () => {
  await using hole = await blackHoleTarget();
  await blames(
    { server: [`wss://${hole.address}`], handshakeTimeoutMs: 300 },
    {
      ...{ step: "tcp", culprit: "timeout", says: new RegExp(`^No answer comes from ${hole.address}`) },
      agent: new RegExp(`${hole.address} did not answer`),
    },
  );
});

test("4: a wrong proxy: nobody, a server of another kind, or a name that does not resolve", async () => {
  const nobody = `http://127.0.0.1:${await freePort()}`;
  const { verdict } = await blames(
    { proxy: [nobody] },
    {
      ...{ step: "tcp", culprit: "refused", says: new RegExp(`^The connection to ${nobody} is refused`) },
      agent: new RegExp(`${nobody} refused the connection`),
    },
  );
  assert.match(verdict.next, /host and port in --proxy,/);
  const env = { HTTPS_PROXY: "http://no-such-proxy.invalid:3128" };
  const named = await blames(
    { server: ["wss://server.example"], env },
    {
      ...{ step: "dns", culprit: "dns", says: /^The name of http:\/\/no-such-proxy\.invalid:3128 does not/ },
      agent: /"no-such-proxy\.invalid" .*does not resolve/,
    },
  );
  assert.match(named.verdict.next, /^Correct it in HTTPS_PROXY,/);
  using mail = await tcp((socket) => socket.end("220 mail.example ESMTP\r\n"));
  const other = `http://127.0.0.1:${mail.port}`;
  await blames(
    { proxy: [other] },
    {
      ...{ step: "proxy", culprit: "proxy_protocol", says: new RegExp(`^What listens at ${other} is no proxy`) },
      agent: new RegExp(other),
    },
  );
});

test("a proxy of another kind that only waits is not taken for a firewall", async () => {
  using web = await tcp(() => {});
  const at = `socks5://127.0.0.1:${web.port}`;
  const { verdict } = await blames(
    { proxy: [at], handshakeTimeoutMs: 300 },
    {
      ...{
        step: "proxy",
        culprit: "proxy_silent",
        says: new RegExp(`^The proxy ${at} takes the connection and does not`),
      },
      agent: new RegExp(`${at} took the connection`),
    },
  );
  assert.match(verdict.next, /scheme and port in --proxy\.$/);
});

/** A proxy that answers so, in the way of the doctor and of an agent. */
async function behind(
  onRequest: NonNullable<ProxyScript["onRequest"]>,
  {
    user = "",
    change = {},
    ...blame
  }: Omit<Blame, "step"> & { readonly user?: string; readonly step?: StepName; readonly change?: DoctorChange },
): Promise<Examined> {
  await using proxy = await ScriptedProxy.start({ onRequest });
  const at = `http://127.0.0.1:${proxy.url.port}`;
  const report = await blames({ ...change, proxy: [at.replace("//", `//${user}`)] }, { step: "proxy", ...blame });
  assert.ok(report.verdict.sentence.includes(at));
  return report;
}

const ASKS = 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="corp"\r\n';

test("5: a proxy that wants a login, and nobody has given one", async () => {
  await behind((_request, socket) => socket.write(`${ASKS}Content-Length: 0\r\n\r\n`), {
    ...{ culprit: "proxy_auth_required", says: /^The proxy .* wants to know who asks/ },
    agent: /--proxy-credentials-file/,
  });
});

test("5b: a file with the login for the proxy that cannot be read is reported before anything is dialled", async () => {
  const proxyCredentialsFile = here.dir.file("no-such-login");
  await using proxy = await ScriptedProxy.start({
    onRequest: (_request, socket) => socket.write(`${ASKS}Content-Length: 0\r\n\r\n`),
  });
  const report = await blames(
    { proxy: [`http://127.0.0.1:${proxy.url.port}`], proxyCredentialsFile },
    {
      ...{ step: "configuration", culprit: "configuration" },
      says: /^Something in the configuration cannot be used: --proxy-credentials-file .*no-such-login cannot be read/,
      agent: /^--proxy-credentials-file .*no-such-login cannot be read/,
    },
  );
  assert.match(detailOf(report, "proxy"), /no-such-login cannot be read/);
  assert.doesNotMatch(report.verdict.next, /Beside that/, "it is one fault");
});

test("5c: a proxy that wants a login, and that a PAC script fetched without TLS names", async (t) => {
  await using proxy = await ScriptedProxy.start({
    onRequest: (_request, socket) => socket.write(`${ASKS}Content-Length: 0\r\n\r\n`),
  });
  const { port } = proxy.url;
  const pac = await serve(t, (_request, response) =>
    response.end(`function FindProxyForURL() { return "PROXY 127.0.0.1:${port}"; }`),
  );
  const proxyCredentialsFile = here.dir.file("login-of-5c");
  writeFileSync(proxyCredentialsFile, "me:secret-of-5c");
  const report = await blames(
    { pac, proxyCredentialsFile },
    {
      ...{ step: "proxy", culprit: "proxy_auth_withheld" },
      says: /^The proxy .* is not told: a script that was fetched without TLS names it/,
      agent: /^the proxy .* is sent none because a PAC script fetched without TLS named it: give the proxy by --proxy/,
    },
  );
  assert.match(report.verdict.next, /--proxy, or give the script in --pac by an https:/);
  assert.doesNotMatch(JSON.stringify(report), /secret-of-5c/);
  assert.ok(proxy.requests.length > 1 && proxy.requests.every(({ fields }) => !fields.has("proxy-authorization")));
});

test("6: a wrong password for the proxy", async () => {
  const report = await behind((_request, socket) => socket.write(`${ASKS}Content-Length: 0\r\n\r\n`), {
    ...{ user: "me:wrong-password@", culprit: "proxy_auth_refused" },
    ...{
      says: /^The proxy .* does not take the user and password/,
      agent: /^the proxy .* refuses the user or the password/,
    },
  });
  assert.doesNotMatch(JSON.stringify(report), /wrong-password/);
});

test("7: a proxy that asks for a login and hangs up, or hangs up without a word", async () => {
  await behind((_request, socket) => socket.end(`${ASKS}Connection: close\r\n\r\n`), {
    ...{ culprit: "proxy_auth_required", says: /wants to know who asks/, agent: /--proxy-credentials-file/ },
  });
  await behind((_request, socket) => socket.destroy(), {
    ...{ culprit: "proxy_closed", says: /^The proxy .* closes the connection instead of answering/ },
    agent: /the proxy .* closed the connection/,
  });
});

test("8: a proxy that answers 502 or 503 with a page", async () => {
  const page = "<html><head><title>No route</title></head><body>Sorry</body></html>";
  for (const status of ["502 Bad Gateway", "503 Service Unavailable"]) {
    const answer = `HTTP/1.1 ${status}\r\nContent-Type: text/html\r\nContent-Length: ${page.length}\r\n\r\n${page}`;
    const report = await behind((_request, socket) => socket.end(answer), {
      ...{ culprit: "proxy_unavailable", says: /^The proxy .* cannot reach the server/, agent: /the proxy .*No route/ },
    });
    assert.match(detailOf(report, "proxy"), /No route/);
  }
});

test("8b: a proxy whose answer to CONNECT is a portal's is blamed for it in one sentence by both", async () => {
  for (const head of ["302 Found\r\nLocation: http://login/", "511 Login"]) {
    const { verdict } = await behind((_, socket) => socket.end(`HTTP/1.1 ${head}\r\nContent-Length: 0\r\n\r\n`), {
      ...{ culprit: "web_page", says: /^A web page comes from http:\S+ in place of the tunnel: a login portal/ },
      agent: /^the proxy \S+ shows a web page in place of the server, most likely a login/,
    });
    assert.match(verdict.next, /in a browser from here, .* log in there, /);
  }
});

test("8c: what speaks no TLS behind a proxy may be the port's fault, or a page of the proxy's: both are named", async () => {
  const page = "<html><title>Guest login</title></html>";
  const ok = `HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: ${page.length}\r\n\r\n${page}`;
  const established = "HTTP/1.1 200 Connection established\r\n\r\n";
  const answers: NonNullable<ProxyScript["onRequest"]>[] = [
    (_, socket) => socket.end(ok),
    (_, socket) => {
      socket.write(established);
      socket.once("data", () => socket.end(ok));
    },
    (_, socket) => void socket.write(`${established}SSH-2.0-OpenSSH_9.6\r\n`),
  ];
  const both =
    "has opened the connection, and what answers there speaks no TLS: the port in --server may be a wrong one, or the proxy shows a page of its own \\(a login\\)";
  for (const onRequest of answers) {
    const { verdict } = await behind(onRequest, {
      ...{ step: "tls", culprit: "no_tls", says: /^What answers at http:\S+, or behind it, does not speak TLS\.$/ },
      agent: new RegExp(`^the proxy \\S+ ${both}`),
    });
    assert.match(verdict.next, /^Check the port in --server: .* log in from this machine /);
  }
});

test("8d: a proxy that opens the connection and lets no TLS through: it is named, and the server behind it", async () => {
  const established = "HTTP/1.1 200 Connection established\r\n\r\n";
  const silent: NonNullable<ProxyScript["onRequest"]> = (_, socket) => void socket.write(established);
  const hangsUp: NonNullable<ProxyScript["onRequest"]> = (_, socket) => {
    socket.write(established);
    socket.once("data", () => socket.end());
  };
  for (const [onRequest, agent] of [
    [silent, /in the TLS handshake: the proxy \S+ has opened the connection, .* does not finish: /],
    [hangsUp, /^the proxy \S+, or what answers behind it, closed the connection in the TLS handshake/],
  ] as const) {
    const report = await behind(onRequest, {
      ...{
        step: "tls",
        culprit: "tls",
        says: /^The TLS handshake with http:\S+, or with what is behind it, fails/,
        agent,
      },
      change: { handshakeTimeoutMs: 1_000 },
    });
    assert.match(detailOf(report, "tls"), /proxy \S+(, or what answers behind it,| has opened the connection)/);
    assert.match(report.verdict.next, /let no TLS to the server through: /);
  }
});

test("9: TLS that a CA of the company intercepts", async () => {
  const company = await Authority.create("Corp Inspection CA");
  await using box = await site(await leafOf({ by: company }), (_request, response) => response.end("hello"));
  const { steps } = await blames(
    { server: box.server },
    {
      ...{ step: "tls", culprit: "intercepted", says: /^TLS is intercepted by "Corp Inspection CA"/ },
      agent: /^TLS is intercepted by "Corp Inspection CA", .*--outer-ca/,
    },
  );
  assert.equal(steps.find(({ step }) => step === "tls")?.chain?.[0]?.issuer, "CN=Corp Inspection CA");
});

/** A box that opens TLS before a server, and what an agent that knows its CA has to say. */
async function opened(t: TestContext, world: World<never>) {
  const box = await Middlebox.start(world.server.addresses.agents?.port ?? 0);
  t.after(() => box[Symbol.asyncDispose]());
  const outerCa = world.dir.file("outer-ca.crt");
  writeFileSync(outerCa, box.authority.cert);
  return { box, change: { server: [`wss://127.0.0.1:${box.port}`], outerCa } };
}

/** A server that takes inner TLS. */
async function innerWorld(t: TestContext): Promise<World<never>> {
  const world = await startWorld({ agents: 0, server: { innerTls: "auto" } });
  t.after(() => world[Symbol.asyncDispose]());
  return world;
}

test("10a: intercepted by a CA that is known: inner TLS goes through it, and the middlebox is named", async (t) => {
  const world = await innerWorld(t);
  const { box, change } = await opened(t, world);
  const report = await examined(world, change);
  const { verdict, steps, text, json } = report;
  assert.equal(verdict.culprit, "none", text);
  assert.match(verdict.sentence, /^TLS is opened on the way by "Corp Inspection CA", .* Nothing is in the way/);
  assert.equal(json.healthy, true);
  assert.deepEqual(
    steps.filter(({ state }) => state !== "passed").map(({ step }) => step),
    ["dns", "proxy"],
    text,
  );
  assert.match(detailOf(report, "tls"), /^opened by "Corp Inspection CA": TLSv1\.\d, CN=127/);
  assert.equal(json.servers[0]?.steps.find(({ step }) => step === "tls")?.openedBy, "Corp Inspection CA");
  assert.match(detailOf(report, "inner tls"), /^TLSv1\.3, CN=\S+ signed by CN=culvert cluster CA, valid until 20/);
  assert.match(detailOf(report, "admission"), /^"agent-1-doctor" is welcome/);
  assert.deepEqual(box.shown, [], "the agent's certificate is not shown to the box");
  assert.equal(box.read.includes("agent-1"), false);
  await using agent = await world.startAgent({ proxyServerPort: box.port, outerCa: change.outerCa });
  assert.ok(agent.connected);
});

test("10b: intercepted by a known CA, and the server's cluster takes no inner TLS", async (t) => {
  const { change } = await opened(t, here);
  const { verdict } = await blames(change, {
    ...{ step: "upgrade", culprit: "inner_tls_off" },
    says: /^TLS is opened on the way by "Corp Inspection CA", .* The server at 127\.0\.0\.1:\d+ takes no inner TLS/,
    agent: /it seems to take no inner TLS \(--inner-tls of the server, agents\.innerTls/,
  });
  assert.match(verdict.next, /^Ask whoever runs the server for --inner-tls=auto, or innerTls: auto/);
});

test("10c: intercepted by a known CA, and the agent may not use inner TLS", async (t) => {
  const { change } = await opened(t, await innerWorld(t));
  const { verdict } = await blames(
    { ...change, innerTls: "never" },
    {
      ...{ step: "tls", culprit: "inner_tls_never", says: /"Corp Inspection CA".*--inner-tls=never is set here/ },
      agent: /^TLS is intercepted by "Corp Inspection CA", .*not --inner-tls=never/,
    },
  );
  assert.match(verdict.next, /^Set --inner-tls=auto here/);
});

test("10d: intercepted by a known CA, and what comes inside is not the server's CA's", async (t) => {
  const world = await innerWorld(t);
  const { change } = await opened(t, world);
  const caCert = world.dir.file("another-ca.crt");
  writeFileSync(caCert, (await Authority.create("Our CA")).cert);
  const { steps } = await blames(
    { ...change, caCert },
    {
      ...{ world, step: "inner tls", culprit: "inner_untrusted" },
      says: /^TLS is opened on the way by "Corp Inspection CA", .* inside inner TLS is signed by "culvert cluster CA"/,
      agent: /^inner TLS: the server's certificate is signed by "culvert cluster CA", which is not in --ca-cert: /,
    },
  );
  assert.equal(steps.find(({ step }) => step === "inner tls")?.chain?.[0]?.issuer, "CN=culvert cluster CA");
});

test("10e: intercepted by a CA that --outer-ca does not have", async (t) => {
  const { change } = await opened(t, here);
  const outerCa = here.dir.file("other-outer-ca.crt");
  writeFileSync(outerCa, (await Authority.create("Another CA")).cert);
  await blames(
    { ...change, outerCa },
    {
      ...{
        step: "tls",
        culprit: "outer_ca",
        says: /"Corp Inspection CA", whom neither --ca-cert nor --outer-ca knows/,
      },
      agent: /^TLS is intercepted by "Corp Inspection CA"/,
    },
  );
});

test("10f: a balancer opens TLS, whose CA was given as that of the server", async (t) => {
  for (const [world, step, code] of [
    [here, "upgrade", 401],
    [await innerWorld(t), "admission", 4401],
  ] as const) {
    const { change } = await opened(t, world);
    const { outerCa: caCert, server } = change;
    const blame = {
      ...({ world, step, culprit: "certificate_unseen" } as const),
      says: /has not seen the agent's certificate: most likely somebody in front of it opens TLS/,
      agent: new RegExp(
        `\\(${code}\\): no client certificate .* a middlebox that --ca-cert knows opens TLS: .*--outer-ca`,
      ),
    };
    const { verdict } = await blames({ server, caCert }, blame);
    assert.match(verdict.next, /as --outer-ca and only the server's own as --ca-cert/);
    // An agent that was given no certificate is told only that it needs one.
    const { verdict: missed } = await examined(world, { server, caCert, agentCert: "", agentKey: "" });
    assert.equal(missed.culprit, "no_credential");
  }
});

test("11: an upgrade that is stripped on the way, whatever the server makes of what is left", async () => {
  const leaf = await leafOf();
  for (const [status, agent] of [
    [400, /^the upgrade did not reach the server whole/],
    [426, /^the upgrade did not reach the server/],
  ] as const) {
    await using box = await site(leaf, (_request, response) => response.writeHead(status).end("no upgrade\n"));
    await blames(
      { server: box.server },
      { step: "upgrade", culprit: "upgrade_stripped", says: /something in between/, agent },
    );
  }
  await using portal = await site(leaf, (_request, response) => {
    response.setHeader("content-type", "text/html").end("<title>Log in</title>");
  });
  const report = await blames(
    { server: portal.server },
    {
      ...{ step: "upgrade", culprit: "web_page", says: /^A web page comes from \S+ in place of the tunnel/ },
      agent: /^something in between answered in place of the server .*"Log in"/,
    },
  );
  assert.match(detailOf(report, "upgrade"), /"Log in"/);
});

test("12: a wrong path", async () => {
  const { agents } = here.server.addresses;
  const report = await blames(
    { server: [`wss://127.0.0.1:${agents?.port}/culvert/v9/tunnel`] },
    {
      ...{ step: "upgrade", culprit: "wrong_path", says: /nothing at the path \/culvert\/v9\/tunnel/ },
      agent: /agents connect at \/culvert\/v1\/tunnel/,
    },
  );
  assert.match(detailOf(report, "upgrade"), /agents connect at \/culvert\/v1\/tunnel/);
});

test("12b: the server's port for callers, with an agent's certificate and with a caller's", async () => {
  const at = `127.0.0.1:${here.server.addresses.callers?.port}`;
  const { serverAuthority } = here.pki;
  const caCert = here.dir.file("callers-ca.crt");
  writeFileSync(caCert, serverAuthority.cert);
  const caller = asAgent(here, await serverAuthority.issue({ cn: "kube-apiserver", usage: "client" }));
  for (const [shown, status] of [
    [{}, 407],
    [caller, 405],
  ] as const) {
    await blames(
      { server: [`wss://${at}`], caCert, ...shown },
      {
        ...{ step: "upgrade", culprit: "callers_port" },
        says: new RegExp(`^${at} is the server's port for callers \\(CONNECT\\), not the one for agents`),
        agent: new RegExp(`\\(${status}\\): this is its port for callers \\(CONNECT\\), .*--agent-port`),
      },
    );
  }
});

test("12c: the callers' port, where the CAs of callers and agents are two, as `culvert pki` makes them", async () => {
  const at = `127.0.0.1:${here.server.addresses.callers?.port}`;
  const { steps } = await blames(
    { server: [`wss://${at}`] },
    {
      ...{ step: "tls", culprit: "callers_port" },
      says: new RegExp(`^${at} is the server's port for callers \\(CONNECT\\), not the one for agents`),
      agent:
        /^the server's certificate is signed by "culvert server CA", which is not in --ca-cert: .* correct the port in --server/,
    },
  );
  assert.equal(steps.find(({ step }) => step === "tls")?.chain?.[0]?.issuer, "CN=culvert server CA");
});

const OVER = { notBefore: new Date(Date.now() - 30 * DAY), notAfter: new Date(Date.now() - 10 * DAY) };

test("13: an agent's certificate that has expired", async () => {
  const expired = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...OVER });
  const report = await blames(asAgent(here, expired), {
    ...{ step: "configuration", culprit: "agent_expired" },
    ...{ says: /^The agent's certificate .*doctor\.crt expired on /, agent: /the client certificate expired on/ },
  });
  assert.match(detailOf(report, "upgrade"), /the client certificate expired on/);
});

const NOTHING_SHOWN: DoctorChange = { agentCert: "", agentKey: "" };

test("13a: no credential is given: the way is examined up to the server's refusal, and the credential is missing", async () => {
  const { verdict, steps, text } = await examined(here, NOTHING_SHOWN);
  assert.equal(verdict.culprit, "no_credential", text);
  const states = new Map(steps.map(({ step, state }) => [step, state]));
  assert.deepEqual(
    (["configuration", "tcp", "tls", "upgrade", "clock", "admission"] as const).map((step) => states.get(step)),
    ["failed", "passed", "passed", "failed", "passed", "not reached"],
  );
  assert.match(text, /^✗ upgrade .*\(401\): no client certificate was sent/m);
  assert.match(verdict.next, /^Give --agent-cert and --agent-key, or --service-account-token-path\.$/);
});

test("13a: no credential is given, and the server refuses TCP: that is the culprit, and both are named", async () => {
  const { verdict } = await examined(here, { ...NOTHING_SHOWN, server: [`wss://127.0.0.1:${await freePort()}`] });
  assert.equal(verdict.culprit, "refused");
  assert.match(verdict.sentence, /^The connection to 127\.0\.0\.1:\d+ is refused: /);
  assert.match(verdict.next, / Beside that: The agent has no credential: .* Give --agent-cert and --agent-key/);
});

test("13b: an agent's certificate that has expired, and the server's too: both are named", async () => {
  await using box = await site(await leafOf(OVER), (_request, response) => response.end("hello"));
  const expired = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...OVER });
  const { verdict } = await blames(
    { server: box.server, ...asAgent(here, expired) },
    {
      ...{ step: "configuration", culprit: "agent_expired" },
      ...{ says: /^The agent's certificate .*doctor\.crt expired on /, agent: /certificate expired on/ },
    },
  );
  assert.match(
    verdict.next,
    /^Renew it: .* Beside that: The certificate of 127\.0\.0\.1:\d+ expired on .* Renew it at the/,
  );
});

test("13c: a CA certificate that has expired is not taken for the server's own, and is named once", async () => {
  const ended = await Authority.create("Old CA", -1);
  const caCert = here.dir.file("old-ca.crt");
  writeFileSync(caCert, ended.cert);
  await using box = await site(
    await leafOf({ by: ended, notAfter: new Date(Date.now() + DAY) }),
    (_request, response) => response.end("hello"),
  );
  const { server } = box;
  const says = /^The CA certificate in --ca-cert expired on /;
  const agent = /^the CA "Old CA" of the server's certificate expired on .* in --ca-cert/;
  const { verdict, steps } = await blames(
    { server, caCert },
    { step: "configuration", culprit: "ca_expired", says, agent },
  );
  assert.equal(steps.find(({ step }) => step === "tls")?.finding?.culprit, "ca_expired");
  assert.doesNotMatch(verdict.next, /Beside that/);

  const mine = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...OVER });
  const both = await examined(here, { server, caCert, ...asAgent(here, mine) });
  assert.equal(both.verdict.culprit, "agent_expired", both.text);
  assert.match(both.verdict.next, /Beside that: The CA certificate in --ca-cert expired on /);
});

test("14: a name that the server does not know", async () => {
  using router = await tcp((socket) => socket.once("data", () => socket.end(UNRECOGNIZED_NAME_ALERT)));
  await blames(
    { server: [`wss://nobody.example:${router.port}`], serverAddress: "127.0.0.1" },
    {
      ...{ step: "tls", culprit: "unknown_name", says: /nobody\.example:\d+ knows no server of that name/ },
      agent: /nobody there has the name "nobody\.example" \(SNI\)/,
    },
  );
});

test("15: a clock that is a day off, and not the certificates that are out of their time by it", async () => {
  // The server's day is yesterday: its certificate is good there, and has ended here.
  const yesterday = { notBefore: new Date(Date.now() - 1.5 * DAY), notAfter: new Date(Date.now() - DAY / 2) };
  const date = new Date(Date.now() - DAY).toUTCString();
  await using box = await site(await leafOf(yesterday), (_request, response) =>
    response.writeHead(401, { date }).end("no\n"),
  );
  const says = /^The clock of this machine is 1 day ahead of the server's/;
  // It hears nothing of the server's time before TLS.
  await blames(
    { server: box.server },
    {
      step: "tls",
      culprit: "clock",
      says,
      agent: /expired on 20.*, by this machine's clock, which says 20.*, or set the clock/,
    },
  );

  // Our own certificate has ended here, and the server says what time it is.
  await using other = await site(await leafOf(), (_request, response) =>
    response.writeHead(401, { date, "proxy-status": "culvert" }).end("the client certificate is not valid\n"),
  );
  const mine = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...yesterday });
  await blames(
    { server: other.server, ...asAgent(here, mine) },
    { step: "configuration", culprit: "clock", says, agent: /; this machine's clock is 1 day ahead of the server's$/ },
  );

  // It is we who are behind: what was issued today is not valid yet.
  const tomorrow = { notBefore: new Date(Date.now() + DAY / 2), notAfter: new Date(Date.now() + 2 * DAY) };
  const later = new Date(Date.now() + DAY).toUTCString();
  await using ahead = await site(await leafOf(tomorrow), (_request, response) =>
    response.writeHead(401, { date: later }).end("no\n"),
  );
  await blames(
    { server: ahead.server },
    {
      ...{ step: "tls", culprit: "clock", says: /is (1 day|23 h 59 min) behind the server's/ },
      agent: /is not valid before 20.*, and this machine's clock says 20.*: compare clocks, /,
    },
  );
});

test("15b: a server's words about time are known as that, and others are not the clock's", async () => {
  const expired = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...OVER });
  const early = await here.pki.clusterAuthority.issue({
    ...{ cn: "agent", usage: "client" },
    ...{ notBefore: new Date(Date.now() + DAY), notAfter: new Date(Date.now() + 2 * DAY) },
  });
  for (const [mine, outOfTime] of [
    [expired, "ended"],
    [early, "early"],
  ] as const) {
    const { steps } = await examined(here, asAgent(here, mine));
    assert.equal(steps.find(({ step }) => step === "upgrade")?.finding?.outOfTime, outOfTime);
  }

  const date = new Date(Date.now() - DAY).toUTCString();
  await using other = await site(await leafOf(), (_request, response) =>
    response.writeHead(403, { date, "proxy-status": "culvert" }).end("CN=x is not among --agent-identities\n"),
  );
  const { verdict } = await blames(
    { server: other.server },
    {
      ...{ step: "upgrade", culprit: "not_admitted" },
      ...{ says: /does not let this agent in: CN=x is not among --agent-identities\.$/, agent: /CN=x is not among/ },
    },
  );
  assert.match(
    verdict.next,
    /Beside that: The clock of this machine is 1 day ahead of the server's: .* Set this machine/,
  );
});

test("a port that speaks no TLS", async () => {
  using mail = await tcp((socket) => socket.end("220 mail.example ESMTP\r\n"));
  await blames(
    { server: [`wss://127.0.0.1:${mail.port}`] },
    {
      ...{
        step: "tls",
        culprit: "no_tls",
        says: new RegExp(`^What answers at 127.0.0.1:${mail.port}, or behind it, does not speak TLS`),
      },
      agent: /^what answers there does not speak TLS: check the port in --server/,
    },
  );
});

test("a certificate that ended long ago is to blame, whatever the clock says", async () => {
  const date = new Date(Date.now() - DAY).toUTCString();
  await using box = await site(await leafOf(OVER), (_request, response) => response.writeHead(401, { date }).end());
  await blames(
    { server: box.server },
    {
      ...{ step: "tls", culprit: "server_expired", next: /--cluster-cert/ },
      says: /^The certificate of 127\.0\.0\.1:\d+ expired on 20/,
      agent: /^the server's certificate expired on 20.*: renew the server's --cluster-cert, or set the clock/,
    },
  );
});

test("a proxy script that cannot be read, and what keeps a server from a proxy", async () => {
  const pac = here.dir.file("no-such.pac");
  const unread = {
    step: "proxy route",
    culprit: "pac",
    says: /^The script of --pac gives no route: .*no-such\.pac/,
  } as const;
  await blames({ pac }, { ...unread, agent: /no-such\.pac/ });
  const kept = await blames(
    {
      server: ["wss://server.invalid"],
      env: { HTTPS_PROXY: "http://me:secret@proxy.invalid:3128", NO_PROXY: ".invalid" },
    },
    {
      ...{ step: "dns", culprit: "dns", says: /^The name of server\.invalid:443 does not resolve here/ },
      agent: /"server\.invalid" .*does not resolve/,
    },
  );
  assert.equal(detailOf(kept, "proxy route"), "direct: NO_PROXY keeps it from http://proxy.invalid:3128 (HTTPS_PROXY)");
});

test("a proxy script's server that is not there, or has no name here, is blamed by one word at both ends", async () => {
  const nobody = `http://127.0.0.1:${await freePort()}/proxy.pac`;
  for (const [pac, culprit, words] of [
    [nobody, "refused", `the PAC script ${nobody} refused the connection`],
    ["http://nosuch.invalid/p", "dns", 'the name "nosuch.invalid" of the PAC script http://nosuch.invalid/p does not'],
  ] as const) {
    const said = RegExp(words);
    const says = new RegExp(`^The (name|connection) (of|to) the PAC script ${pac} `);
    const report = await blames({ pac }, { step: "proxy route", culprit, says, agent: said });
    assert.match(detailOf(report, "proxy route"), said);
    assert.match(report.verdict.next, / in --pac, .*--proxy/);
  }
});

test("of several proxies the first that answers is gone through, and those before it are named", async () => {
  await using proxy = await ScriptedProxy.start({
    onRequest: (_request, socket) => socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
  });
  const [dead, alive] = [await freePort(), proxy.url.port].map((port) => `http://127.0.0.1:${port}`);
  const report = await blames(
    { proxy: [`${dead}`, `${alive}`] },
    {
      ...{
        step: "proxy",
        culprit: "proxy_forbidden",
        says: new RegExp(`^The proxy ${alive} does not let connections`),
      },
      agent: new RegExp(`${alive}`),
    },
  );
  assert.match(detailOf(report, "tcp"), new RegExp(`before it ${dead} refused`));
});
