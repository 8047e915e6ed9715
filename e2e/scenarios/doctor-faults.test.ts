import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { after, before, test } from "node:test";
import type { ServerReport } from "../../agent/doctor/doctor.ts";
import type { Culprit, StepName } from "../../agent/doctor/steps.ts";
import { UNRECOGNIZED_NAME_ALERT } from "../../shared/net/client-hello.ts";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { type ProxyScript, ScriptedProxy } from "../../shared/way-out/testing-proxy.ts";
import { asAgent, examined, site } from "../harness/doctor.ts";
import { blackHoleTarget, freePort } from "../harness/targets/absent.ts";
import { startWorld, type World } from "../harness/world.ts";

const DAY = 86_400_000;

/** The doctor names the culprit at its step, in a sentence with these words; what is behind it was not reached. */
function blames(report: ServerReport, step: StepName, culprit: Culprit, says: RegExp): void {
  const { verdict, steps } = report;
  const shown = JSON.stringify({ verdict, steps }, null, 1);
  assert.equal(verdict.culprit, culprit, shown);
  assert.match(verdict.sentence, says);
  assert.ok(verdict.next.length > 20, shown);
  assert.equal(steps.find(({ state }) => state === "failed")?.step, step, shown);
  assert.equal(steps.at(-1)?.state, "not reached", shown);
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
  const report = await examined(here, { server: ["wss://no-such-host.invalid"] });
  blames(report, "dns", "dns", /name does not resolve here \(no-such-host\.invalid:443\)/);
});

test("2: a port where nobody listens", async () => {
  const port = await freePort();
  const report = await examined(here, { server: [`wss://127.0.0.1:${port}`] });
  blames(report, "tcp", "refused", new RegExp(`^127.0.0.1:${port} refuses the connection`));
});

test("3: a firewall that swallows packets", async () => {
  await using hole = await blackHoleTarget();
  const report = await examined(here, { server: [`wss://${hole.address}`], handshakeTimeoutMs: 300 });
  blames(report, "tcp", "timeout", new RegExp(`^${hole.address} does not answer`));
});

test("4: a wrong proxy: nobody, a server of another kind, or a name that does not resolve", async () => {
  const port = await freePort();
  const nobody = await examined(here, { proxy: [`http://127.0.0.1:${port}`] });
  blames(nobody, "tcp", "refused", new RegExp(`^There is no proxy at http://127.0.0.1:${port}`));
  assert.match(nobody.verdict.next, /--proxy/);
  const env = { HTTPS_PROXY: "http://no-such-proxy.invalid:3128" };
  const named = await examined(here, { server: ["wss://server.example"], env });
  blames(named, "dns", "dns", /^The name of the proxy http:\/\/no-such-proxy\.invalid:3128 does not resolve/);
  assert.match(named.verdict.next, /HTTPS_PROXY/);
  using mail = await tcp((socket) => socket.end("220 mail.example ESMTP\r\n"));
  const other = await examined(here, { proxy: [`http://127.0.0.1:${mail.port}`] });
  blames(other, "proxy", "proxy_protocol", new RegExp(`^What listens at http://127.0.0.1:${mail.port} is no proxy`));
});

/** The report of somebody behind a proxy that answers so. */
async function behind(onRequest: NonNullable<ProxyScript["onRequest"]>, user = ""): Promise<[ServerReport, string]> {
  await using proxy = await ScriptedProxy.start({ onRequest });
  const at = `http://127.0.0.1:${proxy.url.port}`;
  return [await examined(here, { proxy: [at.replace("//", `//${user}`)] }), at];
}

const ASKS = 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="corp"\r\n';

test("5: a proxy that wants a login, and nobody has given one", async () => {
  const [report, at] = await behind((_request, socket) => socket.write(`${ASKS}Content-Length: 0\r\n\r\n`));
  blames(report, "proxy", "proxy_auth_required", new RegExp(`^The proxy ${at} wants to know who asks`));
});

test("6: a wrong password for the proxy", async () => {
  const answer = `${ASKS}Content-Length: 0\r\n\r\n`;
  const [report, at] = await behind((_request, socket) => socket.write(answer), "me:wrong-password@");
  blames(report, "proxy", "proxy_auth_refused", new RegExp(`^The proxy ${at} does not take the user and password`));
  assert.doesNotMatch(JSON.stringify(report), /wrong-password/);
});

test("7: a proxy that asks for a login and hangs up, or hangs up without a word", async () => {
  const [asked] = await behind((_request, socket) => socket.end(`${ASKS}Connection: close\r\n\r\n`));
  blames(asked, "proxy", "proxy_auth_required", /wants to know who asks/);
  const [silent, at] = await behind((_request, socket) => socket.destroy());
  blames(silent, "proxy", "proxy_closed", new RegExp(`^The proxy ${at} closes the connection instead of answering`));
});

test("8: a proxy that answers 502 or 503 with a page", async () => {
  const page = "<html><head><title>No route</title></head><body>Sorry</body></html>";
  for (const status of ["502 Bad Gateway", "503 Service Unavailable"]) {
    const answer = `HTTP/1.1 ${status}\r\nContent-Type: text/html\r\nContent-Length: ${page.length}\r\n\r\n${page}`;
    const [report, at] = await behind((_request, socket) => socket.end(answer));
    blames(report, "proxy", "proxy_unavailable", new RegExp(`^The proxy ${at} cannot reach the server`));
    assert.match(report.steps.find(({ step }) => step === "proxy")?.detail ?? "", /No route/);
  }
});

test("9: TLS that a CA of the company intercepts", async () => {
  const company = await Authority.create("Corp Inspection CA");
  await using box = await site(await leafOf({ by: company }), (_request, response) => response.end("hello"));
  const report = await examined(here, { server: box.server });
  blames(report, "tls", "intercepted", /^TLS is intercepted by "Corp Inspection CA"/);
  assert.equal(report.steps.find(({ step }) => step === "tls")?.chain?.[0]?.issuer, "CN=Corp Inspection CA");
});

test("10: an upgrade that is stripped on the way, whatever the server makes of what is left", async () => {
  const leaf = await leafOf();
  for (const status of [400, 426]) {
    await using box = await site(leaf, (_request, response) => response.writeHead(status).end("no upgrade\n"));
    blames(await examined(here, { server: box.server }), "upgrade", "upgrade_stripped", /something in between/);
  }
  await using portal = await site(leaf, (_request, response) => {
    response.setHeader("content-type", "text/html").end("<title>Log in</title>");
  });
  const report = await examined(here, { server: portal.server });
  blames(report, "upgrade", "web_page", /^A web page comes in place of the tunnel/);
  assert.match(report.steps.find(({ step }) => step === "upgrade")?.detail ?? "", /"Log in"/);
});

test("11: a wrong path", async () => {
  const { addresses } = here.server;
  const report = await examined(here, { server: [`wss://127.0.0.1:${addresses.agents?.port}/culvert/v9/tunnel`] });
  blames(report, "upgrade", "wrong_path", /nothing at the path \/culvert\/v9\/tunnel/);
  assert.match(
    report.steps.find(({ step }) => step === "upgrade")?.detail ?? "",
    /agents connect at \/culvert\/v1\/tunnel/,
  );
});

test("12: an agent's certificate that has expired", async () => {
  const times = { notBefore: new Date(Date.now() - 30 * DAY), notAfter: new Date(Date.now() - 10 * DAY) };
  const expired = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...times });
  const report = await examined(here, asAgent(here, expired));
  blames(report, "configuration", "agent_expired", /^The agent's certificate .*doctor\.crt expired on /);
  const admission = report.steps.find(({ step }) => step === "upgrade")?.detail ?? "";
  assert.match(admission, /the client certificate expired on/);
});

test("13: a name that the server does not know", async () => {
  using router = await tcp((socket) => socket.once("data", () => socket.end(UNRECOGNIZED_NAME_ALERT)));
  const change = { server: [`wss://nobody.example:${router.port}`], serverAddress: "127.0.0.1" };
  blames(await examined(here, change), "tls", "unknown_name", /nobody\.example:\d+ knows no server of that name/);
});

test("14: a clock that is a day off, and not the certificates that are out of their time by it", async () => {
  // The server's day is yesterday: its certificate is good there, and has ended here.
  const yesterday = { notBefore: new Date(Date.now() - 1.5 * DAY), notAfter: new Date(Date.now() - DAY / 2) };
  const date = new Date(Date.now() - DAY).toUTCString();
  await using box = await site(await leafOf(yesterday), (_request, response) =>
    response.writeHead(401, { date }).end("no\n"),
  );
  const server = await examined(here, { server: box.server });
  blames(server, "tls", "clock", /^The clock of this machine is 1 day ahead of the server's/);

  // Our own certificate has ended here, and the server says what time it is.
  await using other = await site(await leafOf(), (_request, response) =>
    response.writeHead(401, { date }).end("the client certificate is not valid\n"),
  );
  const mine = await here.pki.clusterAuthority.issue({ cn: "agent", usage: "client", ...yesterday });
  const agent = await examined(here, { server: other.server, ...asAgent(here, mine) });
  blames(agent, "configuration", "clock", /^The clock of this machine is 1 day ahead of the server's/);

  // It is we who are behind: what was issued today is not valid yet.
  const tomorrow = { notBefore: new Date(Date.now() + DAY / 2), notAfter: new Date(Date.now() + 2 * DAY) };
  const later = new Date(Date.now() + DAY).toUTCString();
  await using ahead = await site(await leafOf(tomorrow), (_request, response) =>
    response.writeHead(401, { date: later }).end("no\n"),
  );
  const behind = await examined(here, { server: ahead.server });
  assert.match(behind.verdict.sentence, /is (1 day|23 h 59 min) behind the server's/);
  assert.equal(behind.verdict.culprit, "clock");
});

test("a certificate that ended long ago is to blame, whatever the clock says", async () => {
  const times = { notBefore: new Date(Date.now() - 30 * DAY), notAfter: new Date(Date.now() - 10 * DAY) };
  const date = new Date(Date.now() - DAY).toUTCString();
  await using box = await site(await leafOf(times), (_request, response) => response.writeHead(401, { date }).end());
  blames(await examined(here, { server: box.server }), "tls", "server_expired", /expired on 20/);
});

test("a proxy script that cannot be read, and what keeps a server from a proxy", async () => {
  const pac = here.dir.file("no-such.pac");
  blames(await examined(here, { pac }), "way out", "pac", /^The script of --pac gives no way out: .*no-such\.pac/);
  const kept = await examined(here, {
    server: ["wss://server.invalid"],
    env: { HTTPS_PROXY: "http://me:secret@proxy.invalid:3128", NO_PROXY: ".invalid" },
  });
  const { detail } = kept.steps.find(({ step }) => step === "way out") ?? {};
  assert.equal(detail, "direct: NO_PROXY keeps it from http://proxy.invalid:3128 (HTTPS_PROXY)");
  blames(kept, "dns", "dns", /^The server's name does not resolve here/);
});

test("of several proxies the first that answers is gone through, and those before it are named", async () => {
  await using proxy = await ScriptedProxy.start({
    onRequest: (_request, socket) => socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
  });
  const [dead, alive] = [await freePort(), proxy.url.port].map((port) => `http://127.0.0.1:${port}`);
  const report = await examined(here, { proxy: [`${dead}`, `${alive}`] });
  blames(report, "proxy", "proxy_forbidden", new RegExp(`^The proxy ${alive} does not let connections`));
  assert.match(report.steps.find(({ step }) => step === "tcp")?.detail ?? "", new RegExp(`before it ${dead} refused`));
});
