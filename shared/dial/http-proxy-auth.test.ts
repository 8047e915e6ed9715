import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { parseChallenges } from "./auth/challenges.ts";
import { formatProxy, ProxyFileFault, RouteFault } from "./proxy-route.ts";
import { authorizations, BASIC, credentials, guarded, OK, type Refusal, refuse } from "./testing/guarded-proxy.ts";
import { faultOf, open, type ProxyRequest, read, ScriptedProxy, testCertificates } from "./testing/scripted-proxy.ts";

test("Basic is answered on the connection that was kept, whatever the framing of the page, and noted over plain http", async () => {
  for (const body of [
    "Content-Length: 4\r\n\r\npage",
    "Content-Length: 0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\n",
  ]) {
    const notes: string[] = [];
    await using proxy = await guarded({ offers: ['Basic realm="x"'], body }, (sent) => sent === BASIC);
    const socket = await open(proxy, { credentials, onNote: (note) => notes.push(note) });
    assert.equal(await read(socket, 2), "in");
    socket.destroy();
    assert.deepEqual([proxy.connections, authorizations(proxy)], [1, [undefined, BASIC]]);
    assert.deepEqual(notes, [
      `the proxy ${formatProxy(proxy.url)} is sent its password in the clear (Basic, over http://)`,
    ]);
  }
});

/** Answers of proxies that want a password, and never ask for one. */
const NOT_ASKING: Readonly<Record<string, (socket: Socket) => void>> = {
  "401": (socket) => socket.write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"),
  "403": (socket) => socket.write("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\npage"),
  "407 without a challenge": (socket) => socket.write("HTTP/1.1 407 Log in\r\nContent-Length: 0\r\n\r\n"),
  "an end": (socket) => socket.end(),
  "a reset": (socket) => socket.resetAndDestroy(),
};

for (const [name, refuses] of Object.entries(NOT_ASKING)) {
  test(`a proxy that answers with ${name} until it sees a password is sent it by Basic, once`, async () => {
    const isOpenFor = async (password: string) => {
      const proxy = await ScriptedProxy.start({
        onRequest: ({ fields }, socket) => {
          if (String(fields.get("proxy-authorization")) === password) socket.write(OK);
          else refuses(socket);
        },
      });
      const socket = await open(proxy, { credentials }).catch(() => undefined);
      socket?.destroy();
      await proxy[Symbol.asyncDispose]();
      return [socket !== undefined, authorizations(proxy)] as const;
    };
    assert.deepEqual(await isOpenFor(BASIC), [true, [undefined, BASIC]]);
    assert.deepEqual(await isOpenFor("Basic other"), [false, [undefined, BASIC]]);
  });
}

test("a password that must wait, or cannot be read, is a fault that says that it was not asked for", async () => {
  for (const [name, answer] of [
    ["401", "401 Unauthorized"],
    ["403", "403 Forbidden: page"],
    ["407 without a challenge", "407 Log in"],
    ["an end", "the connection was closed"],
  ] as const) {
    await using proxy = await ScriptedProxy.start({ onRequest: (_request, socket) => NOT_ASKING[name]?.(socket) });
    const waits = new ProxyFileFault("proxy_auth_refused", "it is sent again in 5 min", { at: "here" });
    const fault = await faultOf(open(proxy, { credentials: () => Promise.reject(waits) }));
    assert.equal(fault, waits);
    assert.equal(fault.message, `it is sent again in 5 min; the password was not asked for (${answer})`);
    assert.deepEqual(authorizations(proxy), [undefined]);
  }
});

test("without a password nothing is sent unasked, and nothing in place of an answer that is about the target", async () => {
  await using silent = await ScriptedProxy.start({ onRequest: (_request, socket) => NOT_ASKING["403"]?.(socket) });
  assert.equal((await faultOf(open(silent, { credentials: async () => undefined }))).fault, "proxy_forbidden");
  assert.equal(silent.requests.length, 1);
  await using away = await ScriptedProxy.start({
    onRequest: (_request, socket) => void socket.write("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"),
  });
  assert.equal((await faultOf(open(away, { credentials }))).fault, "proxy_unavailable");
  assert.equal(away.requests.length, 1);
});

test("Basic to an https proxy is nothing to note, and goes in UTF-8", async () => {
  const { ca, server } = await testCertificates();
  await using proxy = await ScriptedProxy.start({
    tls: server,
    onRequest: ({ fields }, socket) =>
      void socket.write(fields.has("proxy-authorization") ? OK : refuse({ offers: ["basic realm=x"] })),
  });
  const notes: string[] = [];
  const user = { user: "J\u00e4s", password: "p:\u20ac" };
  const socket = await open(proxy, {
    credentials: async () => user,
    tls: { ca: [ca] },
    onNote: (note) => notes.push(note),
  });
  socket.destroy();
  assert.deepEqual(notes, []);
  assert.equal(authorizations(proxy)[1], `Basic ${Buffer.from("J\u00e4s:p:\u20ac", "utf8").toString("base64")}`);
});

test("a proxy that closes behind its 407, with or without a word, is answered on a new connection", async () => {
  const cases: [Refusal, (socket: Socket) => void][] = [
    [{ offers: ["Basic realm=x"], fields: "Proxy-Connection: close\r\n" }, (socket) => socket.end()],
    [{ offers: ["Basic realm=x"], fields: "Connection: close\r\n" }, () => {}],
    [{ offers: ["Basic realm=x"] }, (socket) => socket.end()],
    [{ offers: ["Basic realm=x"] }, (socket) => socket.destroy()],
    [{ offers: ["Basic realm=x"], body: "\r\nuntil the end" }, (socket) => socket.end()],
    [{ offers: ["Basic realm=x"], body: "Content-Length: 4\r\n\r\npageHTTP/1.1 200 smuggled\r\n\r\n" }, () => {}],
    [{ offers: ["Basic realm=x"], body: `Content-Length: 9000000\r\n\r\n${"x".repeat(9_000_000)}` }, () => {}],
  ];
  for (const [refusal, afterwards] of cases) {
    await using proxy = await guarded(
      refusal,
      (sent, { connection }) => sent === BASIC && connection === 1,
      afterwards,
    );
    const socket = await open(proxy, { credentials });
    socket.destroy();
    assert.equal(proxy.connections, 2);
    await until(() => proxy.sockets.size === 0); // the first one, too, which the proxy may keep open
  }
});

test("a kept connection that ends without a byte is tried anew once, and one that says something is not", async () => {
  await using shy = await ScriptedProxy.start({
    onRequest: ({ index, connection }, socket) => {
      if (index === 0 && connection === 0) socket.write(refuse({ offers: ["Digest realm=r, nonce=n, qop=auth"] }));
      else if (connection === 0) socket.destroy();
      else socket.write(OK);
    },
  });
  (await open(shy, { credentials })).destroy();
  const counts = authorizations(shy).map((sent) => /nc=(\d+)/.exec(sent ?? "")?.[1]);
  assert.deepEqual(counts, [undefined, "00000001", "00000002"]);
  await using rude = await ScriptedProxy.start({
    onRequest: ({ index }, socket) =>
      void (index === 0 ? socket.write(refuse({ offers: ["Basic realm=x"] })) : socket.end("HTTP/1.1 2")),
  });
  assert.equal((await faultOf(open(rude, { credentials }))).fault, "proxy_closed");
  assert.equal(rude.connections, 1);
});

test("Digest is chosen before Basic, for the destination, and a stale nonce is renewed", async () => {
  const offers = (nonce: string, more = ""): string[] => [
    'Basic realm="x"',
    `Digest realm="x", nonce="${nonce}", qop="auth", algorithm=MD5${more}, Digest realm="x", nonce="${nonce}", qop="auth", algorithm=SHA-256${more}`,
  ];
  await using proxy = await guarded(
    ({ index }) => ({ offers: index === 0 ? offers("one") : offers("two", ", stale=true") }),
    (sent) => parseChallenges([sent])[0]?.parameters.get("nonce") === "two",
  );
  (await open(proxy, { credentials })).destroy();
  assert.deepEqual([proxy.connections, proxy.requests.length], [1, 3]);
  const last = parseChallenges([authorizations(proxy)[2] ?? ""])[0]?.parameters;
  assert.deepEqual(
    [last?.get("algorithm"), last?.get("uri"), last?.get("nc")],
    ["SHA-256", "agents.example:443", "00000001"],
  );
});

test("a realm that is no ASCII goes back to the proxy byte by byte as it came", async () => {
  const realm = "Caf\u00e9";
  await using proxy = await guarded({ offers: [`Digest realm="${realm}", nonce="n", qop="auth"`] }, () => true);
  (await open(proxy, { credentials })).destroy();
  assert.equal(parseChallenges([authorizations(proxy)[1] ?? ""])[0]?.parameters.get("realm"), realm);
});

test("a proxy of old is asked to keep the connection, in each request", async () => {
  await using proxy = await guarded({ offers: ["Basic realm=x"] }, () => true);
  (await open(proxy, { credentials })).destroy();
  const asked = proxy.requests.map(({ fields }) => fields.get("proxy-connection"));
  assert.deepEqual(asked, ["keep-alive", "keep-alive"]);
});

test("a proxy that calls every nonce stale has trouble of its own, and one that then calls none stale refuses the password", async () => {
  const offer = (nonce: number, more: string): string => `Digest realm="x", nonce="${nonce}", qop="auth"${more}`;
  let heard = "";
  await using endless = await guarded(({ index, fields }) => {
    heard = /response="(\w+)"/.exec(fields.get("proxy-authorization") ?? "")?.[1] ?? "";
    const body = `Content-Length: ${heard.length}\r\n\r\n${heard}`;
    return { offers: [offer(index, ", stale=TRUE")], body };
  });
  const fault = await faultOf(open(endless, { credentials }));
  assert.equal(fault.fault, "proxy_auth_unsupported");
  assert.match(
    fault.message,
    /calls every nonce stale, .* \(Digest\), and says nothing of the password: ask its administrators .*\(407 Proxy Authentication Required\)$/,
  );
  assert.ok(heard !== "" && !fault.message.includes(heard), "what it was sent is not shown");
  assert.equal(endless.requests.length, 3);
  await using refusing = await guarded(({ index }) => ({ offers: [offer(index, index === 1 ? ", stale=true" : "")] }));
  const refused = await faultOf(open(refusing, { credentials }));
  assert.deepEqual([refused.fault, refusing.requests.length], ["proxy_auth_refused", 3]);
});

test("who follows the password learns of each time it goes out, and of the answer that proves it taken", async () => {
  const offer = (more = "") => `Digest realm="x", nonce="n", qop="auth"${more}`;
  const stale = ({ index }: ProxyRequest) => ({ offers: [offer(index === 0 ? "" : ", stale=true")] });
  const followed = async (proxy: ScriptedProxy, mayResend: boolean) => {
    const heard: string[] = [];
    const login = {
      onSent: () => heard.push("shown"),
      onAccepted: () => heard.push("taken"),
      mayResend: () => mayResend || !heard.includes("shown"),
    };
    const end = await open(proxy, { credentials, login }).then(
      (socket) => void socket.destroy(),
      ({ fault }: RouteFault) => fault,
    );
    return [...heard, end];
  };
  await using endless = await guarded(stale);
  assert.deepEqual(await followed(endless, true), ["shown", "shown", "proxy_auth_unsupported"]);
  assert.deepEqual(await followed(endless, false), ["shown", "proxy_auth_unsupported"]);
  await using closing = await ScriptedProxy.start({
    onRequest: ({ fields }, socket) =>
      fields.has("proxy-authorization") ? socket.destroy() : socket.write(refuse({ offers: [offer()] })),
  });
  assert.deepEqual(await followed(closing, true), ["shown", "shown", "proxy_closed"]);
  assert.deepEqual(await followed(closing, false), ["shown", "proxy_closed"]);
  await using taking = await guarded({ offers: [offer()] }, () => true);
  assert.deepEqual(await followed(taking, false), ["shown", "taken", undefined]);
  const answers = { 401: "", 407: "", 302: "", 511: "", 403: "taken", 404: "taken", 502: "taken", 503: "taken" };
  for (const [status, word] of Object.entries(answers)) {
    await using proxy = await ScriptedProxy.start({
      onRequest: ({ fields }, socket) =>
        fields.has("proxy-authorization")
          ? socket.end(`HTTP/1.1 ${status} So\r\nProxy-Authenticate: ${offer()}\r\nContent-Length: 0\r\n\r\n`)
          : socket.write(refuse({ offers: [offer()] })),
    });
    const [shown, taken] = await followed(proxy, true);
    assert.deepEqual([shown, taken === "taken" ? taken : ""], ["shown", word], status);
  }
});

test("a password that is refused is sent once, and its refusal says where to look", async () => {
  await using proxy = await guarded({ offers: ["Basic realm=x"], fields: "Retry-After: 30\r\n" });
  const fault = await faultOf(open(proxy, { credentials }));
  assert.equal(fault.fault, "proxy_auth_refused");
  assert.equal(
    fault.message,
    `the proxy ${formatProxy(proxy.url)} refuses the user or the password (Basic): check the user and the password in --proxy-credentials-file or in the proxy's URL (407 Proxy Authentication Required: page)`,
  );
  assert.equal(fault.retryAfterMs, 30_000);
  assert.equal(proxy.requests.length, 2);
});

test("an answer that repeats a secret that it was sent is not shown", async () => {
  const echoes = [BASIC, BASIC.slice(6), "you said Circle of Life!", BASIC.slice(0, 20)];
  for (const echo of echoes) {
    for (const status of ["407 Again", "403 No", "302 Found"]) {
      await using proxy = await ScriptedProxy.start({
        onRequest: ({ index }, socket) => {
          const body = `Location: http://login.example/${echo}/in\r\nContent-Length: ${echo.length}\r\n\r\n${echo}`;
          const answer =
            index === 0
              ? refuse({ offers: ["Basic realm=x"] })
              : `HTTP/1.1 ${status} ${echo}\r\nProxy-Authenticate: Basic realm=x\r\n${body}`;
          socket.write(answer);
        },
      });
      const fault = await faultOf(open(proxy, { credentials }));
      assert.match(fault.message, new RegExp(`\\(${status.slice(0, 3)}\\)$`));
      assert.doesNotMatch(fault.message, /TXVmYXNh|Circle/);
    }
  }
});

test("without credentials the message names their option, and an unreadable file is a fault of its own", async () => {
  await using proxy = await guarded({ offers: ["NTLM", 'Basic realm="x"', "\x1bodd", "Odd-One"] });
  const fault = await faultOf(open(proxy));
  assert.equal(fault.fault, "proxy_auth_required");
  assert.match(fault.message, /give user:password in --proxy-credentials-file .*\(it offers NTLM, Basic, odd-one\)/);
  const unreadable = new RouteFault("proxy_auth_required", "the file is gone", { at: "here" });
  const told = await faultOf(
    open(proxy, {
      credentials: async () => {
        throw unreadable;
      },
    }),
  );
  assert.equal(told, unreadable);
});

test("a scheme that is not implemented is named with a workaround", async () => {
  await using ntlm = await guarded({ offers: ["NTLM", "Negotiate"] });
  const fault = await faultOf(open(ntlm, { credentials }));
  assert.equal(fault.fault, "proxy_auth_unsupported");
  assert.match(fault.message, /it offers NTLM, Negotiate: Kerberos is not set up here; for NTLM let px or cntlm run/);
  await using modern = await guarded({ offers: ["Digest realm=x, nonce=n, algorithm=SHA-1024", "NTLM"] });
  assert.match(
    (await faultOf(open(modern, { credentials }))).message,
    /it offers Digest, NTLM: Digest is known here with MD5, SHA-256, SHA-512-256, and not with "SHA-1024"; for NTLM let/,
  );
  await using silent = await guarded({ offers: [] });
  const none = { credentials: async () => undefined };
  assert.match((await faultOf(open(silent, none))).message, /it offers none that can be read/);
  assert.deepEqual([ntlm.requests.length, silent.requests.length], [1, 1]);
});
