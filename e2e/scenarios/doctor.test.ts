import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ServerStatus } from "../../server/operators/operator-ports.ts";
import { Tenants } from "../../server/testing/tenants.ts";
import { ISSUER, Issuer, nowS, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { formatProxy } from "../../shared/dial/proxy-route.ts";
import { type ProxyRequest, ScriptedProxy } from "../../shared/dial/testing/scripted-proxy.ts";
import { type DoctorChange, examined } from "../harness/doctor.ts";
import { captureLog } from "../harness/log-lines.ts";
import { Middlebox, messagesIn } from "../harness/middlebox.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { startWorld, type World } from "../harness/world.ts";

test("a healthy way is measured in full, under a name of its own, while a caller's stream goes on", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  const caller = await world.connect("echo");
  const { verdict, steps } = await examined(world, { seconds: 1 });
  assert.equal(verdict.culprit, "none", JSON.stringify(steps));
  const of = (name: string) => steps.find(({ step }) => step === name);
  assert.match(of("admission")?.detail ?? "", /^"agent-1-doctor" is welcome at server "world"/);
  assert.match(of("echo")?.detail ?? "", /^20 round trips/);
  for (const name of ["upload", "download"]) assert.match(of(name)?.detail ?? "", /^[1-9]\d* Mbit\/s$/);
  assert.ok(Math.abs(of("clock")?.aheadMs ?? Number.NaN) < 60_000);

  await caller.send("still here");
  assert.equal(String(await caller.readBytes("still here".length)), "still here");
});

describe("a way that hardly carries anything", { concurrency: true }, () => {
  test("a slow line is reported with its rate, and not as one that holds back or cuts", async () => {
    await using world = await startWorld({ agents: 0 });
    const port = world.server.addresses.agents?.port ?? 0;
    const bytesPerSecond = 64_000 / 8;
    await using line = await startSlowLine(
      { host: "127.0.0.1", port },
      { bytesPerSecond, queueBytes: 256 * 1024, rttMs: 40 },
    );
    const { verdict, steps, text } = await examined(world, { server: [`wss://127.0.0.1:${line.port}`], seconds: 1 });
    assert.equal(verdict.culprit, "none", text);
    for (const name of ["upload", "download"]) {
      const [, rate] = /^(0\.0\d+) Mbit\/s$/.exec(steps.find(({ step }) => step === name)?.detail ?? "") ?? [];
      assert.ok(Number(rate) > 0.02 && Number(rate) < 0.08, text);
    }
  });

  test("a middlebox that lets little pass and holds back what is much is reported at its direction", async () => {
    await using world = await startWorld({ agents: 0 });
    const port = world.server.addresses.agents?.port ?? 0;
    // Handshake and echo take about ten.
    const [few, all] = [24 * 1024, Number.POSITIVE_INFINITY];
    using upwards = await holder(port, { up: few, down: all });
    using downwards = await holder(port, { up: all, down: few });
    const reports = await Promise.all(
      [upwards, downwards].map(({ server }) => examined(world, { server, seconds: 1 })),
    );
    for (const [index, { verdict, steps, text }] of reports.entries()) {
      assert.equal(verdict.culprit, "held_back", text);
      assert.equal(steps.find(({ state }) => state === "failed")?.step, ["upload", "download"][index], text);
    }
  });
});

/** A middlebox that lets this number of bytes pass each way, and swallows all others. */
async function holder(port: number, { up, down }: { readonly up: number; readonly down: number }) {
  const server = net.createServer((socket) => {
    const onward = net.connect(port, "127.0.0.1");
    const passes = (from: net.Socket, to: net.Socket, bytes: number): void => {
      let left = bytes;
      from.on("error", () => to.destroy()).on("close", () => to.destroy());
      from.on("data", (chunk: Buffer) => {
        if (left > 0) to.write(chunk.subarray(0, left));
        left -= chunk.length;
      });
    };
    passes(socket, onward, up);
    passes(onward, socket, down);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    server: [`wss://127.0.0.1:${(server.address() as net.AddressInfo).port}`],
    [Symbol.dispose]: () => void server.close(),
  };
}

/** What the world's server says while the doctor measures, each time that its tunnel is seen. */
async function whileMeasuring<T>(world: World<"echo">, look: () => Promise<T>) {
  const examination = examined(world, { seconds: 1 });
  const isDone = examination.then(() => true);
  const seen: { readonly tunnels: ServerStatus["clusters"][number]["tunnels"]; readonly looked: T }[] = [];
  while (!(await Promise.race([isDone, false]))) {
    const { clusters } = (await (await fetch(`${adminOf(world)}/status`)).json()) as ServerStatus;
    const tunnels = clusters.flatMap((cluster) => cluster.tunnels);
    if (tunnels.some(({ software }) => software.startsWith("culvert-doctor/"))) {
      seen.push({ tunnels, looked: await look() });
    }
  }
  const { verdict, text } = await examination;
  assert.equal(verdict.culprit, "none", text);
  assert.ok(seen.length > 0, "the doctor's tunnel was seen");
  return seen;
}

function adminOf({ server }: Pick<World, "server">): string {
  return `http://127.0.0.1:${server.addresses.admin?.port}`;
}

test("the doctor's tunnel gets no callers, and makes no server ready that has no agent", async () => {
  await using world = await startWorld({
    ...{ agents: 0, targets: ["echo"] },
    server: { agentWaitMs: 0, readyNeedsAgent: true },
  });
  const seen = await whileMeasuring(world, async () => {
    await using refused = await world.connect("echo");
    const ready = await fetch(`http://127.0.0.1:${world.server.addresses.health?.port}/readyz`);
    return [refused.status, ready.status];
  });
  for (const { looked } of seen) assert.deepEqual(looked, [503, 503]);
});

test("beside the doctor an agent keeps its place, its name and its streams, and counts alone", async () => {
  const { log, lines } = captureLog();
  // The only place there is, and the very name by which the doctor goes.
  const agent = { agentId: "agent-1-doctor" };
  await using world = await startWorld({ targets: ["echo"], server: { maxAgents: 1 }, agent, log });
  const caller = await world.connect("echo");
  const before = lines.length;
  const seen = await whileMeasuring(world, async () => {
    const metrics = await (await fetch(`${adminOf(world)}/metrics`)).text();
    await using another = await world.connect("echo");
    return [/^culvert_server_tunnels\{cluster="default"\} (\d+)$/m.exec(metrics)?.[1], another.status];
  });
  for (const { tunnels, looked } of seen) {
    assert.deepEqual(looked, ["1", 200]);
    assert.equal(tunnels.filter(({ probe, draining }) => !probe && !draining).length, 1);
  }
  await caller.send("still here");
  assert.equal(String(await caller.readBytes("still here".length)), "still here");
  const agents = lines.slice(before).filter(({ msg }) => /^uplink|refused|replaced/.test(msg));
  assert.deepEqual(agents, []);
});

test("two doctors with the same options measure side by side", async () => {
  await using world = await startWorld({ agents: 0 });
  const reports = await Promise.all([examined(world), examined(world)]);
  for (const { verdict, steps, text } of reports) {
    assert.equal(verdict.culprit, "none", text);
    assert.equal(steps.find(({ step }) => step === "echo")?.state, "passed", text);
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
  assert.match(verdict.sentence, /through inner TLS/);
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
