import assert from "node:assert/strict";
import { once } from "node:events";
import { renameSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { type AuditLine, auditFile, auditLines } from "../../server/audit/testing/trail.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { curl } from "../harness/curl.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

const ADMIN = "http://127.0.0.1";

/** One CONNECT as kube-apiserver makes it, by curl; returns the status line of the answer. */
async function connectByCurl(site: Site, target: string): Promise<string> {
  const pki = (name: string) => `${site.dir.path}/${name}`;
  const proxy = ["--proxytunnel", "-x", `https://127.0.0.1:${site.callerPort}`, "--proxy-cacert", pki("server-ca.crt")];
  const by = ["--proxy-cert", pki("client.crt"), "--proxy-key", pki("client.key")];
  const output = await curl("-i", "--max-time", "10", ...proxy, ...by, `http://${target}/`).catch((error) =>
    String((error as { stdout?: string }).stdout),
  );
  return output.split("\r\n", 1)[0] ?? "";
}

function of(lines: readonly AuditLine[], kind: string, event: string): AuditLine[] {
  return lines.filter((line) => line.kind === kind && line.event === event);
}

test("a server's trail has its agent, and a CONNECT of curl from its decision to its end, over a rotation and SIGTERM", async () => {
  await using web = await TARGETS.http();
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const file = site.dir.file("audit");
  await using server = await site.startServer({ auditLog: file });
  await using _agent = await site.startAgent();
  assert.match(await connectByCurl(site, web.address), / 200 /);
  assert.match(await connectByCurl(site, "169.254.169.254:80"), / 403 /);
  await waitFor(() => of(auditFile(file), "connect", "end").length === 1, { what: "the end of curl's CONNECT" });
  const lines = auditFile(file);
  assert.deepEqual(
    of(lines, "agent", "decision").map(({ decision }) => decision),
    ["allowed"],
  );
  const [allowed, refused] = of(lines, "connect", "decision");
  assert.deepEqual([allowed?.["target"], allowed?.["address"]], [web.address, web.address]);
  assert.deepEqual([refused?.["decision"], refused?.["rule"]], ["refused", "forbidden"]);

  await using open = await site.open("uds", echo.address);
  renameSync(file, `${file}.1`);
  server.signal("SIGHUP");
  await server.waitForLog("reading all files again");
  await open.send("x");
  await open.readBytes(1);
  open.socket.destroy();
  await waitFor(() => of(auditFile(file), "connect", "end").length === 1, { what: "its end in the new file" });
  const before = of(auditFile(`${file}.1`), "connect", "decision").at(-1);
  assert.equal(of(auditFile(file), "connect", "end")[0]?.id, before?.id);
  assert.deepEqual(before?.["identity"], { by: "unix" });

  server.signal("SIGTERM");
  assert.equal(await within(server.exited, 20_000, "the end of the server"), "exit code 0");
  assert.equal(of(auditFile(file), "agent", "end").length, 1);
});

test("a server that is killed has left a decision of each CONNECT that was answered 200", async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  const file = site.dir.file("audit");
  await using server = await site.startServer({ auditLog: file });
  await using _agent = await site.startAgent();
  let answered = 0;
  const call = async (): Promise<void> => {
    for (;;) {
      const { socket } = await site.open("uds", echo.address);
      answered++;
      socket.destroy();
    }
  };
  const callers = Array.from({ length: 8 }, () => call().catch(() => {}));
  await waitFor(() => answered >= 300, { everyMs: 5, what: "CONNECTs" });
  server.signal("SIGKILL");
  await within(Promise.all(callers), 20_000, "the end of every caller");
  const decisions = of(auditFile(file), "connect", "decision");
  assert.ok(decisions.length >= answered, `${decisions.length} decisions of ${answered} that were answered`);
  assert.equal(new Set(decisions.map(({ id }) => id)).size, decisions.length);
});

test("with --audit-required nobody is connected while the disk is full, and the server is not ready", async () => {
  await using web = await TARGETS.http();
  using site = await createSite();
  await using server = await site.startServer({ auditLog: "/dev/full", auditRequired: true });
  await using _agent = await site.startAgent({}, { wait: false });
  await server.waitForLog("tunnel opened");
  assert.match(await connectByCurl(site, web.address), / 503 the audit trail of this server cannot be written/);
  const ready = await fetch(`${ADMIN}:${site.healthPort}/readyz?verbose`);
  assert.equal(ready.status, 503);
  assert.match(await ready.text(), /audit failed: the audit trail: it cannot be written \(ENOSPC\)/);
  const metrics = await (await fetch(`${ADMIN}:${site.healthPort}/metrics`)).text();
  assert.match(metrics, /^culvert_server_audit_lines_lost_total \d+$/m);
  assert.ok(server.running);
});

test("on stdout the lines of the trail are whole, and apart from those of the log", async () => {
  await using web = await TARGETS.http();
  using site = await createSite();
  await using server = await site.startServer({ auditLog: "-", logFormat: "json" });
  await using _agent = await site.startAgent();
  assert.match(await connectByCurl(site, web.address), / 200 /);
  await server.waitForLog('"event":"end"');
  const trail = server.log.filter((line) => "v" in JSON.parse(line));
  assert.equal(of(auditLines(`${trail.join("\n")}\n`), "connect", "decision").length, 1);
  assert.ok(server.log.some((line) => "level" in JSON.parse(line)));
});

test("a collector at a unix socket gets every line, also those of the time in which it was away", async () => {
  await using web = await TARGETS.http();
  using site = await createSite();
  const path = site.dir.file("collector");
  await using server = await site.startServer({ auditLog: `unix:${path}` });
  await using _agent = await site.startAgent();
  assert.match(await connectByCurl(site, web.address), / 200 /);
  let text = "";
  const collector = createServer((socket) => {
    socket
      .on("error", () => {})
      .on("data", (chunk) => {
        text += String(chunk);
      });
  });
  collector.listen(path);
  await once(collector, "listening");
  await waitFor(() => text.includes('"event":"end"'), { what: "the lines" });
  assert.equal(of(auditLines(text), "connect", "decision").length, 1);
  assert.equal(of(auditLines(text), "agent", "decision").length, 1);
  await server.stop();
  collector.close();
});
