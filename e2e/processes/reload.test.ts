import assert from "node:assert/strict";
import { test } from "node:test";
import type { TLSSocket } from "node:tls";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { type CallerTls, type Connection, connectThrough, established } from "../harness/caller.ts";
import { KubernetesVolume } from "../harness/kubernetes-volume.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor } from "../harness/wait.ts";

const NAMES = ["localhost", "127.0.0.1"];

/** A generation of a callers' CA: what the server shows, and what a caller does. */
interface Generation {
  readonly ca: Authority;
  readonly server: CertificateAndKey;
  readonly caller: CertificateAndKey;
}

async function generation(name: string): Promise<Generation> {
  const ca = await Authority.create(name);
  const server = await ca.issue({ cn: `server of ${name}`, names: NAMES, usage: "server" });
  return { ca, server, caller: await ca.issue({ cn: `caller of ${name}`, usage: "client" }) };
}

function secret(server: CertificateAndKey, ...trusted: Authority[]): Record<string, string> {
  return { "tls.crt": server.cert, "tls.key": server.key, "ca.crt": trusted.map(({ cert }) => cert).join("") };
}

function flagsOf(volume: KubernetesVolume) {
  return {
    serverCert: volume.file("tls.crt"),
    serverKey: volume.file("tls.key"),
    serverCaCert: volume.file("ca.crt"),
  };
}

test("a mounted Secret that changes is read again: certificate and CAs, old and new callers, broken ones never", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const [old, young] = await Promise.all([generation("old"), generation("new")]);
  const volume = new KubernetesVolume(site.dir.file("secret"), secret(old.server, old.ca));
  await using server = await site.startServer(flagsOf(volume));
  await using _agent = await site.startAgent();
  const trust = old.ca.cert + young.ca.cert;
  const dial = (by: CertificateAndKey) => asCaller(site, { ca: trust, ...by }, echo.address);
  const ask = async (by: CertificateAndKey) => {
    await using connection = await dial(by);
    return { status: connection.status, shown: shownBy(connection) };
  };
  await using leaving = await established(dial(old.caller));
  assert.equal(shownBy(leaving), "server of old");
  assert.equal((await ask(young.caller)).status, 407);

  // The overlap of a rotation: both CAs, then the new certificate, then the new CA alone.
  volume.update(secret(old.server, old.ca, young.ca));
  await eventually(async () => (await ask(young.caller)).status === 200, "the new CA to count");
  assert.equal((await ask(old.caller)).status, 200);
  await using steadyCaller = await dial(young.caller);
  volume.update(secret(young.server, old.ca, young.ca));
  await eventually(async () => (await ask(old.caller)).shown === "server of new", "the new certificate");

  for (const [broken, why] of [
    [{ ...secret(young.server, young.ca), "tls.crt": "-----BEGIN CERTIFICATE-----\nnonsense" }, "no certificate"],
    [{ ...secret(young.server, young.ca), "tls.key": old.server.key }, "the key of another"],
    [{ ...secret(young.server, young.ca), "ca.crt": "" }, "no CA at all"],
  ] as const) {
    const before = complaints();
    volume.update(broken);
    await eventually(() => complaints() > before, `a complaint about ${why}`);
    assert.equal((await ask(old.caller)).status, 200, "what was good stays");
    assert.match(
      await readyz(site),
      /\[\+\]certificates ok: callers: good until \S+, kept because its files are not usable now \(/,
    );
  }
  function complaints(): number {
    return server.log.filter((line) => line.includes("new certificates are not usable, the old ones stay")).length;
  }

  await leaving.send("all the while");
  assert.equal((await leaving.readBytes(13)).toString(), "all the while");
  volume.update(secret(young.server, young.ca));
  await eventually(async () => (await ask(old.caller)).status === 407, "the old CA to be gone");
  await eventually(() => leaving.socket.destroyed, "the end of the connection that came by the old CA");
  assert.equal((await ask(young.caller)).status, 200);
  assert.doesNotMatch(await readyz(site), /not usable now/);

  await steadyCaller.send("all the while");
  assert.equal((await steadyCaller.readBytes(13)).toString(), "all the while");
  assert.doesNotMatch(server.log.join("\n"), /PRIVATE KEY/);
});

test("the agents' port reads its files again, and an agent shows its renewed certificate with its next link", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const [old, young] = await Promise.all([generation("old"), generation("new")]);
  const atServer = new KubernetesVolume(site.dir.file("server-secret"), secret(old.server, old.ca));
  const atAgent = new KubernetesVolume(site.dir.file("agent-secret"), secret(old.caller, old.ca));
  await using server = await site.startServer({
    clusterCert: atServer.file("tls.crt"),
    clusterKey: atServer.file("tls.key"),
    clusterCaCert: atServer.file("ca.crt"),
    agentWait: "7s",
  });
  const files = {
    agentCert: atAgent.file("tls.crt"),
    agentKey: atAgent.file("tls.key"),
    caCert: atAgent.file("ca.crt"),
  };
  await using _agent = await site.startAgent({ agentId: "edge", ...files });
  await server.waitForLog(/"tunnel opened".*|"identity":"CN=caller of old".*"tunnel opened"/);

  atServer.update(secret(young.server, young.ca));
  // From now on the agent, which has another name, may begin anew at any moment: whoever asks in that moment is served,
  // too.
  atAgent.update(secret(young.caller, young.ca));
  await server.waitForLog("certificates were read again");
  assert.equal(await status(site, echo.address), 200, "the tunnel that stands goes on, or the next one");
  // Its next link is the first that shows anything: the server's end makes it come.
  server.signal("SIGTERM");
  await server.exited;
  await using next = await site.startServer({
    clusterCert: atServer.file("tls.crt"),
    clusterKey: atServer.file("tls.key"),
    clusterCaCert: atServer.file("ca.crt"),
    agentWait: "7s",
  });
  assert.equal(await status(site, echo.address), 200);
  await next.waitForLog(/"identity":"CN=caller of new"/);
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

function asCaller(site: Site, tls: CallerTls, target: string): Promise<Connection> {
  return connectThrough({ host: "127.0.0.1", port: site.callerPort, tls }, target);
}

async function status(site: Site, target: string): Promise<number> {
  await using connection = await connectThrough(site.listener("uds"), target);
  return connection.status;
}

/** The name in the server's certificate. */
function shownBy(connection: Connection): unknown {
  return (connection.socket as TLSSocket).getPeerCertificate().subject?.CN;
}

async function readyz(site: Site): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${site.healthPort}/readyz?verbose`);
  assert.equal(response.status, 200);
  return response.text();
}

async function eventually(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  await waitFor(condition, { deadlineMs: 10_000, everyMs: 50, what });
}
