import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { buffer, text } from "node:stream/consumers";
import { test } from "node:test";
import { connect, createServer } from "node:tls";
import { inspect } from "node:util";
import { Authority } from "../pki/certificates.ts";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { type ProxyServer, RouteFault, type RouteFaultCode } from "./proxy-route.ts";
import { openThroughSocks, speakSocks } from "./socks-proxy.ts";
import { AUTHENTICATED, hex, length, NO_AUTH, reply, scripted, USER_AUTH } from "./testing/scripted-socks.ts";

const SERVER = { host: "culvert.example.com", port: 8443 };
const ANNA = { user: "anna", password: "sécret:1" };

test("socks5h: the proxy gets the name, we get the connection", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    assert.equal(await peer.read(3), "050100");
    peer.write(NO_AUTH);
    assert.equal(await peer.read(7 + SERVER.host.length), `05010003${length(SERVER.host)}${hex(SERVER.host)}20fb`);
    peer.write(reply(0));
    assert.equal(await peer.read(4), hex("ping"));
    peer.write(hex("pong"));
  });
  const socket = await open(proxy);
  socket.end("ping");
  assert.equal(await text(socket), "pong");
  await proxy.done;
});

test("socks5: the name is resolved here", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    await peer.read(3);
    peer.write(NO_AUTH);
    const head = await peer.read(4);
    assert.match(head, /^0501000[14]$/);
    const address = await peer.read(head.endsWith("1") ? 4 : 16);
    assert.ok(["7f000001", `${"0".repeat(31)}1`].includes(address), address);
    peer.write(reply(0));
  });
  await open(proxy, { scheme: "socks5", to: { host: "localhost", port: 1 } });
  await proxy.done;
});

test("socks5: an address is nobody's to resolve", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    await peer.read(3);
    peer.write(NO_AUTH);
    assert.equal(await peer.read(22), "05010004fd000000000000000000000000000001 0001".replace(" ", ""));
    peer.write(reply(0));
  });
  await open(proxy, { scheme: "socks5", to: { host: "fd00::1", port: 1 } });
  await proxy.done;
});

test("bytes behind the proxy's answer are kept, also with an end right behind them", async () => {
  const connection = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
  const proxy = { scheme: "socks5h", host: "p", port: 1, credentials: undefined } as const;
  const speaking = speakSocks(connection, { proxy, target: SERVER, credentials: undefined });
  connection.push(Buffer.from(`${NO_AUTH}${reply(0)}${hex("early bytes")}`.replaceAll(" ", ""), "hex"));
  connection.push(null);
  await speaking;
  assert.equal(String(await buffer(connection)), "early bytes");
});

test("a user and a password are sent when the proxy asks for them", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    assert.equal(await peer.read(4), "05020002");
    peer.write(USER_AUTH);
    const expected = `01${length(ANNA.user)}${hex(ANNA.user)}${length(ANNA.password)}${hex(ANNA.password)}`;
    assert.equal(await peer.read(expected.length / 2), expected);
    peer.write(AUTHENTICATED);
    await peer.readRequest();
    peer.write(reply(0));
  });
  await open(proxy, { credentials: ANNA });
  await proxy.done;
});

test("bytes behind the proxy's answer are kept, when they come in pieces of a byte", async (t) => {
  const proxy = await scripted(t, async (peer) => {
    await peer.readRequestWithoutLogin();
    const answer = `${reply(0)}${hex("early bytes")}`;
    for (const [byte] of answer.replaceAll(" ", "").matchAll(/../g)) await peer.writeAlone(byte);
    peer.end();
  });
  const socket = await open(proxy);
  // The owner of the socket may take it later.
  await new Promise(setImmediate);
  assert.equal(await text(socket), "early bytes");
});

test("TLS goes through", async (t) => {
  const authority = await Authority.create("ca");
  const server = createServer(await authority.issue({ cn: SERVER.host, names: [SERVER.host], usage: "server" }));
  server.on("secureConnection", (socket) => socket.pipe(socket));
  const proxy = await scripted(t, async (peer) => {
    await peer.readRequestWithoutLogin();
    peer.write(reply(0));
    server.emit("connection", peer.handOver());
  });
  const secure = connect({ socket: await open(proxy), ca: authority.cert, servername: SERVER.host });
  t.after(() => secure.destroy());
  secure.end("there and back");
  assert.equal(await text(secure), "there and back");
});

const TO = "culvert\\.example\\.com:8443";
const CANNOT_REACH = `says that it cannot reach ${TO}: check its name and port as the proxy sees them`;
const REPLIES: readonly [code: number, fault: RouteFaultCode, sentence: string][] = [
  [
    1,
    "proxy_unavailable",
    `opens no connection to ${TO} and says no more: .* \\(SOCKS reply 1: general SOCKS server failure\\)`,
  ],
  [2, "proxy_forbidden", `does not allow connections to ${TO}: ask .* \\(SOCKS reply 2: not allowed by ruleset\\)`],
  [3, "proxy_unavailable", `${CANNOT_REACH} \\(SOCKS reply 3: network unreachable\\)`],
  [4, "proxy_unavailable", `${CANNOT_REACH} \\(SOCKS reply 4: host unreachable\\)`],
  [5, "proxy_unavailable", `${CANNOT_REACH} \\(SOCKS reply 5: connection refused\\)`],
  [6, "proxy_unavailable", `${CANNOT_REACH} \\(SOCKS reply 6: TTL expired\\)`],
  [7, "proxy_protocol", `makes no outgoing connections, .* ${TO} \\(SOCKS reply 7: command not supported\\)`],
  [8, "proxy_unavailable", `does not take ${TO}: .* \\(SOCKS reply 8: address type not supported\\)`],
  [0x5b, "proxy_protocol", "does not speak SOCKS 5: check scheme and port of the proxy"],
];

for (const [code, fault, sentence] of REPLIES) {
  test(`reply ${code} is ${fault}, and the proxy is named as the one who says it`, async (t) => {
    const proxy = await scripted(t, async (peer) => {
      await peer.readRequestWithoutLogin();
      peer.write(reply(code));
    });
    await rejectsWith(open(proxy), fault, proxy.at, new RegExp(`^the proxy ${proxy.at} ${sentence}$`));
  });
}

const REFUSALS: readonly [
  title: string,
  credentials: ProxyCredentials | undefined,
  answers: readonly string[],
  fault: RouteFaultCode,
  sentence: RegExp,
][] = [
  [
    "a refused password",
    ANNA,
    [USER_AUTH, "0101"],
    "proxy_auth_refused",
    /refuses the user or the password: check .* in --proxy-credentials-file or in the proxy's URL$/,
  ],
  ["no method that we offered", undefined, ["05ff"], "proxy_auth_required", /--proxy-credentials-file/],
  ["a password asked for that we do not have", undefined, [USER_AUTH, "0101"], "proxy_auth_required", /URL/],
  [
    "only other methods than a password",
    ANNA,
    ["05ff"],
    "proxy_auth_unsupported",
    /of --proxy-credentials-file nor .*: ask/,
  ],
  ["a method that was not offered", undefined, ["0501"], "proxy_protocol", /scheme and port/],
  ["an HTTP proxy", undefined, [hex("HTTP/1.1 400 Bad Request\r\n\r\n")], "proxy_protocol", /does not speak SOCKS 5/],
  ["SOCKS 4", undefined, ["0400"], "proxy_protocol", /does not speak SOCKS 5/],
  ["an address of an unknown type", undefined, [NO_AUTH, "0500000801020304"], "proxy_protocol", /SOCKS 5/],
  ["a close at once", undefined, [], "proxy_closed", /closed the connection/],
  ["a close after half a reply", undefined, [NO_AUTH, "0500"], "proxy_closed", /closed the connection/],
];

for (const [title, credentials, answers, fault, sentence] of REFUSALS) {
  test(`${title} is ${fault}, and the password appears nowhere`, async (t) => {
    const proxy = await scripted(t, async (peer) => {
      for (const answer of answers) {
        await peer.readSome();
        peer.write(answer);
      }
      peer.end();
    });
    const error = await rejectsWith(open(proxy, { credentials }), fault, proxy.at, sentence);
    assert.ok(!inspect(error, { depth: 9 }).includes(ANNA.password));
  });
}

test("a proxy where nobody listens is refused, at the proxy", async (t) => {
  const proxy = await scripted(t, async () => {});
  await proxy.close();
  await rejectsWith(open(proxy), "refused", proxy.at, /socks5h:\/\/127\.0\.0\.1:\d+ refused the connection/);
});

test("a name that cannot be resolved here is the server's, a proxy's the proxy's", async (t) => {
  const proxy = await scripted(t, async () => {});
  const nowhere = { host: "culvert.invalid", port: 1 };
  await rejectsWith(open(proxy, { scheme: "socks5", to: nowhere }), "dns", "culvert.invalid:1", /"culvert\.invalid"/);
  const unknown = { ...proxy, host: "proxy.invalid" };
  await rejectsWith(open(unknown), "dns", `socks5h://proxy.invalid:${proxy.port}`, /"proxy\.invalid" of socks5h:/);
});

test("an abort closes the connection and says where it stood", async (t) => {
  const abort = new AbortController();
  const proxy = await scripted(t, async (peer) => {
    await peer.read(3);
    abort.abort();
    await peer.ended();
  });
  await rejectsWith(open(proxy, { signal: abort.signal }), "timeout", proxy.at, /took the connection and opened none/);
  await proxy.done;
  await rejectsWith(open(proxy, { signal: abort.signal }), "timeout", proxy.at, /./);
});

test("what is too long for SOCKS is refused before anything is sent", async (t) => {
  const proxy = await scripted(t, async () => assert.fail("a connection was made"));
  const long = "x".repeat(256);
  await rejectsWith(open(proxy, { to: { host: long, port: 1 } }), "proxy_protocol", proxy.at, /at most 255 bytes/);
  const credentials = { user: "anna", password: long };
  await rejectsWith(open(proxy, { credentials }), "proxy_protocol", proxy.at, /at most 255 bytes/);
});

interface OpenRouteOptions {
  readonly scheme?: "socks5" | "socks5h";
  readonly to?: { readonly host: string; readonly port: number };
  readonly credentials?: ProxyCredentials | undefined;
  readonly signal?: AbortSignal;
}

function open(proxy: Pick<ProxyServer, "host" | "port">, options: OpenRouteOptions = {}): Promise<Socket> {
  const { scheme = "socks5h", to = SERVER, credentials, signal = AbortSignal.timeout(30_000) } = options;
  return openThroughSocks(
    { scheme, host: proxy.host, port: proxy.port, credentials: undefined },
    to,
    { credentials: async () => credentials },
    signal,
  );
}

async function rejectsWith(
  opening: Promise<Socket>,
  fault: RouteFaultCode,
  at: string,
  sentence: RegExp,
): Promise<RouteFault> {
  const error = await opening.then(
    () => assert.fail("a connection was opened"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof RouteFault, inspect(error));
  assert.deepEqual({ fault: error.fault, at: error.at }, { fault, at });
  assert.match(error.message, sentence);
  return error;
}
