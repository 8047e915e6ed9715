import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { Tenants } from "../../server/testing/tenants.ts";
import { ISSUER, Issuer, nowS, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { formatProxy } from "../../shared/dial/proxy-route.ts";
import { type ProxyRequest, ScriptedProxy } from "../../shared/dial/testing/scripted-proxy.ts";
import { type DoctorChange, examined } from "../harness/doctor.ts";
import { captureLog } from "../harness/log-lines.ts";
import { Middlebox, messagesIn } from "../harness/middlebox.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { startWorld, type World } from "../harness/world.ts";

test("beside a doctor that examines a healthy path, the agent keeps its place, its name and its streams", async () => {
  const { log, lines } = captureLog();
  // The only place there is, and the very name by which the doctor goes.
  const agent = { agentId: "agent-1-doctor" };
  await using world = await startWorld({ targets: ["echo"], server: { maxAgents: 1 }, agent, log });
  const caller = await world.connect("echo");
  const before = lines.length;
  const { verdict, steps, text } = await examined(world);
  assert.equal(verdict.culprit, "none", text);
  const of = (name: string) => steps.find(({ step }) => step === name);
  assert.match(of("admission")?.detail ?? "", /^"agent-1-doctor" is welcome at server "world"/);
  assert.ok(Math.abs(of("clock")?.aheadMs ?? Number.NaN) < 60_000, text);

  await caller.send("still here");
  assert.equal(String(await caller.readBytes("still here".length)), "still here");
  const since = lines.slice(before);
  assert.deepEqual(
    since.filter(({ msg }) => msg === "tunnel opened").map(({ probe }) => probe),
    [true],
  );
  assert.deepEqual(
    since.filter(({ msg }) => /^uplink|refused|replaced/.test(msg)),
    [],
  );
});

test("a slow line is no fault", async () => {
  await using world = await startWorld({ agents: 0 });
  const port = world.server.addresses.agents?.port ?? 0;
  await using line = await startSlowLine(
    { host: "127.0.0.1", port },
    { bytesPerSecond: 64_000 / 8, queueBytes: 256 * 1024, rttMs: 40 },
  );
  const { verdict, text } = await examined(world, { server: [`wss://127.0.0.1:${line.port}`] });
  assert.equal(verdict.culprit, "none", text);
});

test("two doctors with the same options work side by side", async () => {
  await using world = await startWorld({ agents: 0 });
  for (const { verdict, text } of await Promise.all([examined(world), examined(world)])) {
    assert.equal(verdict.culprit, "none", text);
  }
});

test("without anybody who opens TLS there is nothing inside, unless it is wanted always", async () => {
  await using world = await startWorld({ agents: 0, server: { innerTls: "auto" } });
  const outerCa = world.dir.file("cluster-ca.crt");
  const inner = async (change: DoctorChange) => {
    const { verdict, steps, text } = await examined(world, change);
    assert.match(verdict.sentence, /^Nothing is in the way/, text);
    const { state, detail } = steps.find(({ step }) => step === "inner tls") ?? {};
    return `${state}: ${detail}`;
  };
  assert.equal(await inner({}), "skipped: nobody opens TLS");
  assert.equal(await inner({ outerCa }), "skipped: nobody opens TLS");
  assert.equal(await inner({ innerTls: "never" }), "skipped: --inner-tls is never");
  assert.match(await inner({ innerTls: "always" }), /^passed: TLSv1\.3, CN=\S+ signed by CN=culvert cluster CA/);
});

test("a token is shown inside only, where TLS is opened on the way", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const { folder } = tenants;
  const file = async (name: string, text: string): Promise<string> => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  const issuer = await Issuer.create();
  await file("blue.jwks", JSON.stringify(await issuer.keySet()));
  const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks", subjects: [SUBJECT] };
  await tenants.get("blue").write({
    agents: { sni: [], token: { jwt }, identities: [], innerTls: "auto" },
    callers: { sni: [] },
  });
  const server = await tenants.start();
  const token = await issuer.token({ exp: nowS() + 600 });
  await using box = await Middlebox.start(server.addresses.agents?.port ?? 0);
  const { verdict, steps, text } = await examined(
    { dir: { path: folder }, server },
    {
      ...{ server: [`wss://127.0.0.1:${box.port}`], agentCert: "", agentKey: "" },
      caCert: join(folder, "blue.ca"),
      outerCa: await file("outer.ca", box.authority.cert),
      serviceAccountTokenPath: await file("token", token),
    },
  );
  assert.equal(verdict.culprit, "none", text);
  assert.match(verdict.sentence, /^TLS is opened on the way by/);
  assert.equal(steps.find(({ step }) => step === "admission")?.state, "passed");
  assert.equal(box.read.includes(token), false, "no header has it");
  const said = box.opened.flatMap(({ sent }) => messagesIn(Buffer.concat(sent)));
  assert.ok(said.length > 0);
  assert.equal(Buffer.concat(said).includes(token), false, "no message has it");
});

/** A proxy that leads to the world's server, for the requests that `lets` accepts. */
function proxyTo({ server }: Pick<World, "server">, lets: (request: ProxyRequest) => string | undefined) {
  return ScriptedProxy.start({
    onRequest: (request, socket) => {
      const refusal = lets(request);
      if (refusal !== undefined) return void socket.write(refusal);
      socket.removeAllListeners("data");
      const onward = net.connect(server.addresses.agents?.port ?? 0, "127.0.0.1");
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      socket.pipe(onward.on("error", () => {})).pipe(socket);
    },
  });
}

test("a healthy way through a proxy says which one, and who has named it", async () => {
  await using world = await startWorld({ agents: 0 });
  await using proxy = await proxyTo(world, () => undefined);
  const at = formatProxy(proxy.url);
  const { verdict, steps } = await examined(world, { proxy: [at] });
  assert.equal(verdict.culprit, "none", JSON.stringify(steps));
  const shown = steps.flatMap(({ step, detail }) => (["proxy route", "proxy"].includes(step) ? detail : []));
  assert.deepEqual(shown, [`${at} (--proxy)`, `through ${at} (--proxy); no login is asked for`]);
});

test("a login at a proxy is reported with what the proxy has offered, and the password is not", async () => {
  await using world = await startWorld({ agents: 0 });
  const challenges = 'Proxy-Authenticate: NTLM\r\nProxy-Authenticate: Basic realm="corp"\r\nContent-Length: 0\r\n\r\n';
  await using proxy = await proxyTo(world, ({ fields }) =>
    fields.has("proxy-authorization") ? undefined : `HTTP/1.1 407 Who are you\r\n${challenges}`,
  );
  const at = formatProxy(proxy.url);
  const { verdict, steps, text } = await examined(world, { proxy: [at.replace("//", "//me:some-password@")] });
  assert.equal(verdict.culprit, "none", text);
  const { detail } = steps.find(({ step }) => step === "proxy") ?? {};
  assert.match(
    String(detail),
    /Basic, over http:\/\/.*; through \S+ \(--proxy\); logged in by Basic \(offered: NTLM, Basic\)$/,
  );
  assert.doesNotMatch(text, /some-password/);
});

test("of two proxies the one that lets through is gone through, and what the other said is told", async () => {
  await using world = await startWorld({ agents: 0 });
  await using closed = await proxyTo(world, () => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  await using open = await proxyTo(world, () => undefined);
  const [shut, at] = [closed, open].map(({ url }) => formatProxy(url));
  const { verdict, steps, text } = await examined(world, { proxy: [`${shut}`, `${at}`] });
  assert.equal(verdict.culprit, "none", text);
  const { detail = "" } = steps.find(({ step }) => step === "proxy") ?? {};
  assert.ok(
    detail.startsWith(`through ${at} (--proxy); no login is asked for; before it the proxy ${shut} does not`),
    detail,
  );
});
