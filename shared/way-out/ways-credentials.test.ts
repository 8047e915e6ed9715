import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { inspect } from "node:util";
import { CredentialsFile } from "./credentials-file.ts";
import { scripted, USER_AUTH } from "./testing-socks.ts";
import { basicProxy, httpProxy, never, rejected, SERVER, socks, ways } from "./testing-ways.ts";
import { formatWay } from "./way.ts";
import { WaysOut } from "./ways.ts";

test("a URL's credentials are for its own proxy only, the file's for those without, read anew for each", async (t) => {
  const { credentials, write } = credentialsFile(t, "file:first");
  const seen: string[] = [];
  const own = await asking(t, seen, () => write("file:second"));
  const other = await asking(t, seen);
  const out = ways({ proxies: [own.at.replace("//", "//url:own@"), other.at] });
  const error = await rejected(out, "proxy_auth_refused", { credentials });
  assert.deepEqual(seen, ["url:own", "file:second"]);
  assert.ok(!/own@|second/.test(inspect(error, { depth: 9 })));
});

test("a refused password is not shown again before its time, and another one at once; ways to all servers share that", async (t) => {
  let now = 0;
  const { credentials, write } = credentialsFile(t, "anna:wrong");
  const proxy = await basicProxy(t, "anna:right");
  const out = new WaysOut({ proxies: [proxy.url], pac: "", env: {} }, () => now);
  const first = await rejected(out, "proxy_auth_refused", { credentials });
  assert.match(first.message, /refuses the user or the password \(Basic\)/);
  for (const host of ["one", "two", "three"]) {
    now += 60_000;
    const to = { host, port: 443 };
    const held = await rejected(out, "proxy_auth_refused", { credentials }, never(), to);
    assert.match(
      held.message,
      /refused the user or the password \d min ago; so that no account is locked, they are held back for \d min, then tried again: write others into --proxy-credentials-file, /,
    );
    assert.equal(held.at, proxy.url);
  }
  assert.deepEqual(proxy.shown, ["anna:wrong"]);
  now += 3 * 60_000;
  await rejected(out, "proxy_auth_refused", { credentials });
  assert.deepEqual(proxy.shown, ["anna:wrong", "anna:wrong"], "its time has come");
  write("anna:right");
  (await out.open(SERVER, { credentials }, never())).socket.destroy();
  write("anna:wrong");
  await rejected(out, "proxy_auth_refused", { credentials });
  assert.deepEqual(proxy.shown, ["anna:wrong", "anna:wrong", "anna:right"], "what was refused is known still");
});

test("several connections that begin at once show a password one after the other, and a wrong one once", async (t) => {
  const { credentials, write } = credentialsFile(t, "anna:wrong");
  const proxy = await basicProxy(t, "anna:right");
  const out = ways({ proxies: [proxy.url] });
  const three = ["one", "two", "three"].map((host) => ({ host, port: 443 }));
  await Promise.all(three.map((to) => rejected(out, "proxy_auth_refused", { credentials }, never(), to)));
  assert.deepEqual(proxy.shown, ["anna:wrong"]);
  write("anna:right");
  const opened = await Promise.all(three.map((to) => out.open(to, { credentials }, never())));
  for (const { socket } of opened) socket.destroy();
  assert.deepEqual(proxy.shown.slice(1), ["anna:right", "anna:right", "anna:right"]);
});

test("a password of a URL is held back, too, and the sentence says that a new URL needs a restart", async (t) => {
  const proxy = await basicProxy(t, "anna:right");
  const out = ways({ proxies: [proxy.url.replace("//", "//anna:wrong@")] });
  await rejected(out, "proxy_auth_refused");
  const held = await rejected(out, "proxy_auth_refused");
  assert.match(held.message, /held back for \d min, then tried again: put others into the proxy's URL and restart,/);
  assert.deepEqual(proxy.shown, ["anna:wrong"]);
});

test("a password of which a proxy says nothing, but that its own nonces are stale, is not held back", async (t) => {
  const { credentials } = credentialsFile(t, "anna:right");
  let sent = 0;
  const proxy = await httpProxy(t, (said, socket) => {
    if (said.startsWith("Digest")) sent++;
    const offer = `Proxy-Authenticate: Digest realm=r, nonce=${sent}, qop=auth, stale=${sent > 0}\r\n`;
    socket.end(`HTTP/1.1 407 Who\r\n${offer}Content-Length: 0\r\n\r\n`);
  });
  const out = ways({ proxies: [proxy] });
  for (const expected of [2, 4]) {
    await rejected(out, "proxy_auth_unsupported", { credentials });
    assert.equal(sent, expected);
  }
});

test("while a password is held back from one proxy the next one is tried, and what failed is told", async (t) => {
  const { credentials } = credentialsFile(t, "anna:wrong");
  const proxy = await basicProxy(t, "anna:right");
  const gone = await socks(t, 0);
  await gone.close();
  const out = ways({ proxies: [proxy.url, gone.at] });
  await rejected(out, "proxy_auth_refused", { credentials });
  const again = await rejected(out, "proxy_auth_refused", { credentials });
  assert.match(again.message, /are held back for .*; socks5h:\S+ refused the connection/);
  const opens = await socks(t, 0);
  const { socket, way, failed } = await ways({ proxies: [proxy.url, opens.at] }).open(SERVER, {}, never());
  socket.destroy();
  assert.equal(formatWay(way), `${opens.at} (--proxy)`);
  assert.deepEqual(
    failed.map(({ fault, at }) => [fault, at]),
    [["proxy_auth_required", proxy.url]],
  );
});

test("a credentials file that cannot be read is the fault", async (t) => {
  const proxy = await socks(t, 0);
  const credentials = new CredentialsFile("/nowhere/credentials");
  const error = await rejected(ways({ proxies: [proxy.at] }), "proxy_auth_required", { credentials });
  assert.match(error.message, /^--proxy-credentials-file \/nowhere\/credentials cannot be read/);
});

/** A proxy that asks for a password, writes down what it is given, and refuses it. */
function asking(t: TestContext, seen: string[], then: () => void = () => {}) {
  return scripted(t, async (peer) => {
    await peer.read(4);
    peer.write(USER_AUTH);
    const text = async () => Buffer.from(await peer.read(Number.parseInt(await peer.read(1), 16)), "hex").toString();
    await peer.read(1);
    seen.push(`${await text()}:${await text()}`);
    then();
    peer.write("0101");
  });
}

function credentialsFile(t: TestContext, content: string) {
  const folder = mkdtempSync(join(tmpdir(), "culvert-ways-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "credentials");
  const write = (text: string): void => writeFileSync(path, text);
  write(content);
  return { credentials: new CredentialsFile(path), write };
}
