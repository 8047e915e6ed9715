import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { inspect } from "node:util";
import { CredentialsFile } from "./proxy-credentials.ts";
import { formatProxy, formatRoute, type RouteFaultCode } from "./proxy-route.ts";
import { ProxyRoutes } from "./proxy-routes.ts";
import { refuse } from "./testing/guarded-proxy.ts";
import { basicProxy, credentialsFile, httpProxy, never, rejected, routes, SERVER, socks } from "./testing/routes.ts";
import { ScriptedProxy } from "./testing/scripted-proxy.ts";
import { AUTHENTICATED, NO_AUTH, type Peer, scripted } from "./testing/scripted-socks.ts";

test("a URL's credentials are for its own proxy only, the file's for those without, read anew for each", async (t) => {
  const { credentials, write } = credentialsFile(t, "file:first");
  const seen: string[] = [];
  const own = await asking(t, seen, () => write("file:second"));
  const other = await asking(t, seen);
  const out = routes({ proxies: [own.at.replace("//", "//url:own@"), other.at] });
  const error = await rejected(out, "proxy_auth_refused", { credentials });
  assert.deepEqual(seen, ["url:own", "file:second"]);
  assert.ok(!/own@|second/.test(inspect(error, { depth: 9 })));
});

test("a refused password waits before it is sent again, another one is sent at once, and this holds for all servers", async (t) => {
  let now = 0;
  const { credentials, write } = credentialsFile(t, "anna:wrong");
  const proxy = await basicProxy(t, "anna:right");
  const out = new ProxyRoutes({ proxies: [proxy.url], pac: "", env: {} }, () => now);
  const first = await rejected(out, "proxy_auth_refused", { credentials });
  assert.match(first.message, /refuses the user or the password \(Basic\)/);
  for (const host of ["one", "two", "three"]) {
    now += 60_000;
    const to = { host, port: 443 };
    const held = await rejected(out, "proxy_auth_refused", { credentials }, never(), to);
    assert.match(
      held.message,
      /refused the password \d min ago; to avoid an account lockout it is sent again in \d min: a new one in --proxy-credentials-file /,
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

test("several connections that begin at once send a password one after the other, and a wrong one once", async (t) => {
  const { credentials, write } = credentialsFile(t, "anna:wrong");
  const proxy = await basicProxy(t, "anna:right");
  const out = routes({ proxies: [proxy.url] });
  const three = ["one", "two", "three"].map((host) => ({ host, port: 443 }));
  await Promise.all(three.map((to) => rejected(out, "proxy_auth_refused", { credentials }, never(), to)));
  assert.deepEqual(proxy.shown, ["anna:wrong"]);
  write("anna:right");
  const opened = await Promise.all(three.map((to) => out.open(to, { credentials }, never())));
  for (const { socket } of opened) socket.destroy();
  assert.deepEqual(proxy.shown.slice(1), ["anna:right", "anna:right", "anna:right"]);
});

test("a password in a URL is held back, too, and the message says that a new URL needs a restart", async (t) => {
  const proxy = await basicProxy(t, "anna:right");
  const out = routes({ proxies: [proxy.url.replace("//", "//anna:wrong@")] });
  await rejected(out, "proxy_auth_refused");
  const held = await rejected(out, "proxy_auth_refused");
  assert.match(held.message, /sent again in \d min: after a restart a new one in the proxy's URL is sent at once$/);
  assert.deepEqual(proxy.shown, ["anna:wrong"]);
});

type StartProxy = (t: TestContext, onShown: () => void) => Promise<string>;

/** A proxy that answers with this status, with a password and without. */
const always =
  (status: string): StartProxy =>
  (t, onShown) =>
    httpProxy(t, (said, socket) => {
      if (said !== "") onShown();
      socket.end(`HTTP/1.1 ${status}\r\nContent-Length: 0\r\n\r\n`);
    });

/** Proxies that get a password and give no answer to it. */
const SILENT: readonly (readonly [title: string, fault: RouteFaultCode, start: StartProxy])[] = [
  ["closes on it", "proxy_closed", (t, onShown) => judgingProxy(t, (socket) => socket.end(), onShown)],
  [
    "closes on it the connection that it has kept for it",
    "proxy_closed",
    (t, onShown) => keepingProxy(t, (socket) => socket.destroy(), onShown),
  ],
  ["does not ask, and refuses it as it refuses to go without", "proxy_forbidden", always("401 Unauthorized")],
  ["forbids everything, with the password as without", "proxy_forbidden", always("403 Forbidden")],
  [
    "calls its own nonces stale",
    "proxy_auth_unsupported",
    (t, onShown) =>
      httpProxy(t, (said, socket) => {
        if (said !== "") onShown();
        const offer = `Digest realm=r, nonce=${randomUUID()}, qop=auth, stale=${said !== ""}`;
        socket.end(
          `HTTP/1.1 407 Who\r\nProxy-Authenticate: ${offer}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
        );
      }),
  ],
  [
    "sends us to a login",
    "web_page",
    (t, onShown) => judgingProxy(t, (socket) => socket.end("HTTP/1.1 511 Login\r\nContent-Length: 0\r\n\r\n"), onShown),
  ],
  [
    "speaks SOCKS and closes on it",
    "proxy_closed",
    (t, onShown) =>
      judgingSocks(t, (peer) => {
        onShown();
        peer.end();
      }),
  ],
];

for (const [title, fault, start] of SILENT) {
  test(`a proxy that ${title} gets a wrong password at most four times in half an hour`, async (t) => {
    let now = 0;
    const shown: number[] = [];
    const { credentials, write } = credentialsFile(t, "anna:wrong");
    const proxy = await start(t, () => shown.push(now / 60_000));
    const out = new ProxyRoutes({ proxies: [proxy], pac: "", env: {} }, () => now);
    let told = "";
    for (; now < 30 * 60_000; now += 15_000) {
      told = (await rejected(out, fault, { credentials })).message;
    }
    assert.ok(shown.length >= 2 && shown.length <= 4, `${shown}`);
    assert.match(told, new RegExp(`did not accept the password \\d+ min ago \\(${fault}\\); to avoid`));
    const before = shown.length;
    write("anna:other");
    await rejected(out, fault, { credentials });
    assert.ok(shown.length > before, "another one goes out at once");
  });
}

test("a password whose attempt is over before the proxy answers is sent at most four times in half an hour", async (t) => {
  let now = 0;
  let shown = 0;
  let abort = new AbortController();
  const { credentials } = credentialsFile(t, "anna:wrong");
  const proxy = await judgingProxy(
    t,
    () => abort.abort(),
    () => shown++,
  );
  const out = new ProxyRoutes({ proxies: [proxy], pac: "", env: {} }, () => now);
  for (; now < 30 * 60_000; now += 15_000) {
    await rejected(out, "timeout", { credentials }, abort.signal);
    abort = new AbortController();
  }
  assert.equal(shown, 4);
});

test("a proxy that checks a password slowly is not cut short for the sake of the next one", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { credentials } = credentialsFile(t, "anna:wrong");
  let shown = 0;
  const refuse = (socket: Duplex): void => {
    t.mock.timers.tick(5_000);
    socket.end('HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n');
  };
  const slow = () => judgingProxy(t, refuse, () => shown++);
  const out = routes({ proxies: [await slow(), await slow()] });
  for (let attempt = 0; attempt < 3; attempt++) await rejected(out, "proxy_auth_refused", { credentials });
  assert.equal(shown, 2);
});

test("a SOCKS proxy accepts a password before it answers for the server", async (t) => {
  const { credentials } = credentialsFile(t, "anna:right");
  let shown = 0;
  const proxy = await judgingSocks(t, async (peer) => {
    shown++;
    peer.write(AUTHENTICATED);
    await peer.readRequest();
    peer.end();
  });
  const out = routes({ proxies: [proxy] });
  for (let attempt = 0; attempt < 20; attempt++) await rejected(out, "proxy_closed", { credentials });
  assert.equal(shown, 20);
});

test("a password that was not asked for, or could not be sent, is not held back", async (t) => {
  const { credentials } = credentialsFile(t, "anna:right");
  const open = await scripted(t, async (peer) => {
    await peer.read(4);
    peer.write(NO_AUTH);
    await peer.readRequest();
    peer.end();
  });
  const gone = await socks(t, 0);
  await gone.close();
  for (const [proxy, fault] of [
    [open.at, "proxy_closed"],
    [gone.at, "refused"],
  ] as const) {
    const out = routes({ proxies: [proxy] });
    for (let attempt = 0; attempt < 20; attempt++) {
      assert.doesNotMatch((await rejected(out, fault, { credentials })).message, /account lockout/);
    }
  }
});

test("while a password is held back from one proxy the next one is tried, and the faults are combined", async (t) => {
  const { credentials } = credentialsFile(t, "anna:wrong");
  const proxy = await basicProxy(t, "anna:right");
  const gone = await socks(t, 0);
  await gone.close();
  const out = routes({ proxies: [proxy.url, gone.at] });
  await rejected(out, "proxy_auth_refused", { credentials });
  const again = await rejected(out, "proxy_auth_refused", { credentials });
  assert.match(again.message, /account lockout .*; socks5h:\S+ refused the connection/);
  const opens = await socks(t, 0);
  const { socket, route, failed } = await routes({ proxies: [proxy.url, opens.at] }).open(SERVER, {}, never());
  socket.destroy();
  assert.equal(formatRoute(route), `${opens.at} (--proxy)`);
  assert.deepEqual(
    failed.map(({ fault, at }) => [fault, at]),
    [["proxy_auth_required", proxy.url]],
  );
});

test("a credentials file that cannot be read is the fault", async (t) => {
  const proxy = await socks(t, 0);
  const credentials = new CredentialsFile("/nowhere/credentials");
  const error = await rejected(routes({ proxies: [proxy.at] }), "proxy_auth_required", { credentials });
  assert.match(error.message, /^--proxy-credentials-file \/nowhere\/credentials cannot be read/);
});

/** An HTTP proxy that asks for a password on one connection, and does on the next one what comes of that. */
function judgingProxy(t: TestContext, judge: (socket: Duplex) => void, onShown: () => void): Promise<string> {
  return httpProxy(t, (said, socket) => {
    if (said === "") {
      socket.end(
        "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
      );
      return;
    }
    onShown();
    judge(socket);
  });
}

/** The same, on one connection. */
async function keepingProxy(t: TestContext, judge: (socket: Socket) => void, onShown: () => void): Promise<string> {
  const proxy = await ScriptedProxy.start({
    onRequest: ({ fields }, socket) => {
      if (!fields.has("proxy-authorization")) {
        socket.write(refuse({ offers: ["Basic realm=x"] }));
        return;
      }
      onShown();
      judge(socket);
    },
  });
  t.after(() => proxy[Symbol.asyncDispose]());
  return formatProxy(proxy.url);
}

/** A SOCKS proxy that wants a password, and what it does when it has read it. */
async function judgingSocks(t: TestContext, judge: (peer: Peer) => void | Promise<void>): Promise<string> {
  const { at } = await scripted(t, async (peer) => {
    await peer.readLogin();
    await judge(peer);
  });
  return at;
}

/** A proxy that asks for a password, writes down what it is given, and refuses it. */
function asking(t: TestContext, seen: string[], then: () => void = () => {}) {
  return scripted(t, async (peer) => {
    seen.push(await peer.readLogin());
    then();
    peer.write("0101");
  });
}
