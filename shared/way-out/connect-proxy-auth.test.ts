import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { test } from "node:test";
import { parseChallenges } from "./auth/challenges.ts";
import { type Kerberos, kerberosFrom, type LoadKerberos } from "./auth/kerberos.ts";
import { TicketPace } from "./auth/ticket-pace.ts";
import { WayFault } from "./fault.ts";
import {
  faultOf,
  open,
  type ProxyRequest,
  read,
  ScriptedProxy,
  testCertificates,
  USER,
  until,
} from "./testing-proxy.ts";
import { formatProxy } from "./way.ts";

const OK = "HTTP/1.1 200 Connection established\r\n\r\n";
const credentials = async () => USER;
const BASIC = `Basic ${Buffer.from("Mufasa:Circle of Life").toString("base64")}`;

interface Refusal {
  readonly offers: readonly string[];
  readonly fields?: string;
  readonly body?: string;
}

function refuse({ offers, fields = "", body = "Content-Length: 4\r\n\r\npage" }: Refusal): string {
  const lines = offers.map((offer) => `Proxy-Authenticate: ${offer}\r\n`).join("");
  return `HTTP/1.1 407 Proxy Authentication Required\r\n${lines}${fields}${body}`;
}

/** A proxy that refuses until `accepts` is content. */
function guarded(
  refusal: Refusal | ((request: ProxyRequest) => Refusal),
  accepts: (authorization: string, request: ProxyRequest) => boolean = () => false,
  afterwards: (socket: Socket) => void = () => {},
): Promise<ScriptedProxy> {
  return ScriptedProxy.start({
    onRequest: (request, socket) => {
      const authorization = request.fields.get("proxy-authorization");
      if (authorization !== undefined && accepts(authorization, request)) {
        socket.write(`${OK}in`);
        return;
      }
      socket.write(refuse(typeof refusal === "function" ? refusal(request) : refusal), "latin1", () =>
        afterwards(socket),
      );
    },
  });
}

function authorizations(proxy: ScriptedProxy): (string | undefined)[] {
  return proxy.requests.map(({ fields }) => fields.get("proxy-authorization"));
}

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

test("Digest is chosen before Basic, for the destination, and a stale nonce is renewed once", async () => {
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
  await using endless = await guarded(() => ({ offers: offers("three", ", stale=true") }));
  assert.equal((await faultOf(open(endless, { credentials }))).fault, "proxy_auth_refused");
  assert.equal(endless.requests.length, 3);
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

test("an answer that repeats what it was sent in confidence is not shown", async () => {
  const echoes = [BASIC, BASIC.slice(6), "you said Circle of Life!", BASIC.slice(0, 20)];
  for (const echo of echoes) {
    for (const status of ["407 Again", "403 No"]) {
      await using proxy = await ScriptedProxy.start({
        onRequest: ({ index }, socket) => {
          const body = `Content-Length: ${echo.length}\r\n\r\n${echo}`;
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

test("without credentials the option that takes them is named, and a file that cannot be read is told as it is", async () => {
  await using proxy = await guarded({ offers: ["NTLM", 'Basic realm="x"', "\x1bodd", "Odd-One"] });
  const fault = await faultOf(open(proxy));
  assert.equal(fault.fault, "proxy_auth_required");
  assert.match(fault.message, /give user:password in --proxy-credentials-file .*\(it offers NTLM, Basic, odd-one\)/);
  const unreadable = new WayFault("proxy_auth_required", "the file is gone", { at: "here" });
  const told = await faultOf(
    open(proxy, {
      credentials: async () => {
        throw unreadable;
      },
    }),
  );
  assert.equal(told, unreadable);
});

test("what cannot be done here is named with a way round it", async () => {
  await using ntlm = await guarded({ offers: ["NTLM", "Negotiate"] });
  const fault = await faultOf(open(ntlm, { credentials }));
  assert.equal(fault.fault, "proxy_auth_unsupported");
  assert.match(fault.message, /it offers NTLM, Negotiate: Kerberos is not set up here; for NTLM let px or cntlm run/);
  await using silent = await guarded({ offers: [] });
  assert.match((await faultOf(open(silent, { credentials }))).message, /it offers none that can be read/);
  assert.deepEqual([ntlm.requests.length, silent.requests.length], [1, 1]);
});

/** Answers each token `t` with `t+1`, and is content with the token `last`. */
function fakeKerberos(last: string, services: string[] = []): LoadKerberos {
  const kerberos: Kerberos = {
    GSS_MECH_OID_SPNEGO: 6,
    async initializeClient(service) {
      services.push(service);
      let contextComplete = false;
      return {
        get contextComplete() {
          return contextComplete;
        },
        async step(token) {
          if (token === "forged") throw new Error("the checksum is wrong");
          contextComplete = token === last;
          return `${token}client`;
        },
      };
    },
  };
  return async () => kerberos;
}

test("Negotiate goes on with the proxy's tokens on one connection, and its last token is checked", async () => {
  for (const [final, ends] of [
    ["", "well"],
    ["Proxy-Authenticate: Negotiate done\r\n", "well"],
    ["Proxy-Authentication-Info: Negotiate done\r\n", "well"],
    ["Proxy-Authenticate: Negotiate forged\r\n", "does not prove who it is (Negotiate): the checksum is wrong"],
  ] as const) {
    const services: string[] = [];
    await using proxy = await ScriptedProxy.start({
      onRequest: ({ index, fields }, socket) => {
        const sent = fields.get("proxy-authorization");
        if (index === 0) socket.write(refuse({ offers: ["Negotiate", "Digest realm=x, nonce=n", "Basic realm=x"] }));
        else if (sent === "Negotiate client") socket.write(refuse({ offers: ["Negotiate more"] }));
        else socket.write(`HTTP/1.1 200 OK\r\n${final}\r\n`);
      },
    });
    const signal = AbortSignal.timeout(20_000);
    const opening = open(proxy, { credentials, negotiate: new TicketPace({}) }, signal, fakeKerberos("done", services));
    if (ends === "well") (await opening).destroy();
    else assert.equal((await faultOf(opening)).message, `the proxy ${formatProxy(proxy.url)} ${ends}`);
    assert.deepEqual(authorizations(proxy), [undefined, "Negotiate client", "Negotiate moreclient"]);
    assert.deepEqual([proxy.connections, services], [1, ["HTTP@127.0.0.1"]]);
  }
});

test("a ticket that is refused is not followed by a password, and no proxy asks for proofs without end", async () => {
  const signal = AbortSignal.timeout(20_000);
  await using proxy = await guarded({ offers: ["Negotiate", "Basic realm=x"] });
  const fault = await faultOf(
    open(proxy, { credentials, negotiate: new TicketPace({}) }, signal, fakeKerberos("done")),
  );
  assert.deepEqual([fault.fault, proxy.requests.length], ["proxy_auth_refused", 2]);
  assert.match(fault.message, /refuses the Kerberos ticket/);
  await using endless = await guarded({ offers: ["Negotiate more"] });
  const asked = await faultOf(open(endless, { negotiate: new TicketPace({}) }, signal, fakeKerberos("done")));
  assert.deepEqual([asked.fault, endless.requests.length], ["proxy_auth_refused", 3]);
  assert.match(asked.message, /asks for ever more proofs/);
  await using forger = await guarded(({ index }) => ({ offers: [index === 0 ? "Negotiate" : "Negotiate forged"] }));
  const forged = await faultOf(open(forger, { negotiate: new TicketPace({}) }, signal, fakeKerberos("done")));
  assert.equal(forged.fault, "proxy_auth_unsupported");
  assert.match(forged.message, /cannot be answered by Negotiate: the checksum is wrong \(407/);
});

test("where there is no ticket a weaker scheme does, and where there is none the sentence says how to get one", async () => {
  const signal = AbortSignal.timeout(20_000);
  const noTicket: LoadKerberos = async () => ({
    GSS_MECH_OID_SPNEGO: 6,
    initializeClient: () => Promise.reject(new Error(`No credentials\n\x1b[31m${" were supplied".repeat(1_000)}`)),
  });
  await using both = await guarded({ offers: ["Negotiate", "Basic realm=x"] }, (sent) => sent === BASIC);
  (await open(both, { credentials, negotiate: new TicketPace({}) }, signal, noTicket)).destroy();
  const required = await faultOf(open(both, { negotiate: new TicketPace({}) }, signal, noTicket));
  assert.equal(required.fault, "proxy_auth_required");
  assert.match(
    required.message,
    /there is no Kerberos ticket for it: run kinit, or name a keytab in KRB5_CLIENT_KTNAME; .* \(GSS-API says: No credentials \[31m were /,
  );
  assert.match(required.message, /^[\x20-\x7e]{1,1000}$/);
  await using only = await guarded({ offers: ["Negotiate"] });
  const locked = new TicketPace({ KRB5_CLIENT_KTNAME: "/nowhere/old.keytab" });
  await faultOf(open(only, { negotiate: locked }, signal, noTicket));
  const waits = await faultOf(open(only, { negotiate: locked }, signal, noTicket));
  assert.match(waits.message, /it offers Negotiate; the keytab \S+old.keytab gave no .* not tried again for 2 min/);
  const absent = await faultOf(
    open(only, { credentials, negotiate: new TicketPace({}) }, signal, kerberosFrom("kerberos-of-nobody")),
  );
  assert.equal(absent.fault, "proxy_auth_unsupported");
  assert.match(absent.message, /kerberos is not installed: run "npm install --prefix \S+ kerberos@7" \(/);
});

test("Kerberos that never answers is told when the time is over", async () => {
  await using proxy = await guarded({ offers: ["Negotiate"] });
  const abort = new AbortController();
  const stuck: LoadKerberos = () => {
    setImmediate(() => abort.abort());
    return new Promise(() => {});
  };
  const fault = await faultOf(open(proxy, { negotiate: new TicketPace({}) }, abort.signal, stuck));
  assert.equal(fault.fault, "timeout");
  assert.match(fault.message, /took too long because Kerberos gave no ticket: check that its KDC can be reached$/);
});

test("behind a KDC that is slower than an attempt, the next attempt reaches the weaker scheme", async () => {
  await using proxy = await guarded({ offers: ["Negotiate", "Basic realm=x"] }, (sent) => sent === BASIC);
  const negotiate = new TicketPace({});
  const abort = new AbortController();
  let fail = (_reason: Error): void => assert.fail("nothing was begun");
  const slow: LoadKerberos = async () => ({
    GSS_MECH_OID_SPNEGO: 6,
    initializeClient: () => {
      setImmediate(() => abort.abort());
      return new Promise((_resolve, reject) => {
        fail = reject;
      });
    },
  });
  const late = await faultOf(open(proxy, { credentials, negotiate }, abort.signal, slow));
  assert.match(late.message, /took too long because Kerberos gave no ticket/);
  const waiting = open(proxy, { credentials, negotiate }, AbortSignal.timeout(20_000), slow);
  await until(() => proxy.requests.length === 2);
  fail(new Error("cannot contact any KDC"));
  (await waiting).destroy();
  (await open(proxy, { credentials, negotiate }, AbortSignal.timeout(20_000), slow)).destroy();
  assert.deepEqual(authorizations(proxy), [undefined, undefined, BASIC, undefined, BASIC]);
});
