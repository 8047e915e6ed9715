import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { KerberosTickets } from "./auth/kerberos.ts";
import type { RouteFaultCode } from "./proxy-route.ts";
import type { OpenRouteOptions, ProxyRoutesOptions } from "./proxy-routes.ts";
import { authorizations, BASIC, guarded } from "./testing/guarded-proxy.ts";
import { pacScript, serve, serveTls } from "./testing/pac-server.ts";
import { credentialsFile, never, rejected, routes } from "./testing/routes.ts";
import { ScriptedProxy, TO } from "./testing/scripted-proxy.ts";
import { AUTHENTICATED, reply, scripted, USER_AUTH } from "./testing/scripted-socks.ts";

interface Named {
  readonly options: Partial<ProxyRoutesOptions>;
  /** Whom the server of an https:// script may come from. */
  readonly ca?: () => readonly string[];
}

const WITHHELD =
  /^the proxy http:\S+ wants a password, and is sent none because a PAC script fetched without TLS named it: give the proxy by --proxy, or the script by https:\/\/ \(407 /;

/** The sources whose proxies get the password of the file. */
const VERIFIED: readonly (readonly [who: string, name: (t: TestContext, place: string) => Named | Promise<Named>])[] = [
  ["--proxy", (_t, place) => ({ options: { proxies: [`http://${place}`] } })],
  ["the environment", (_t, place) => ({ options: { env: { HTTPS_PROXY: `http://${place}` } } })],
  [
    "a PAC script of an https:// URL",
    async (t, place) => {
      const { url, ca } = await serveTls(t, (_request, response) => response.end(pacScript(`PROXY ${place}`)));
      return { options: { pac: url }, ca };
    },
  ],
  [
    "a PAC script of a file",
    (t, place) => {
      const { path } = credentialsFile(t, pacScript(`PROXY ${place}`));
      return { options: { pac: path } };
    },
  ],
];

for (const [who, name] of VERIFIED) {
  test(`a proxy that ${who} names gets the password of the file`, async (t) => {
    await using proxy = await guarded({ offers: ["Basic realm=x"] }, (authorization) => authorization === BASIC);
    const { options, ca } = await name(t, placeOf(proxy));
    const { socket } = await routes(options).open(TO, { ...file(t), tls: () => ({ ca: ca?.() }) }, never());
    socket.destroy();
    assert.deepEqual(authorizations(proxy), [undefined, BASIC]);
  });
}

const OFFERS = ["Basic realm=x", "Digest realm=x, nonce=n, qop=auth", "Negotiate"] as const;

for (const offer of OFFERS) {
  test(`a proxy that a PAC script of an http:// URL names gets nothing by ${offer.split(" ")[0]}`, async (t) => {
    await using proxy = await guarded({ offers: [offer] });
    const pac = await serve(t, (_request, response) => response.end(pacScript(`PROXY ${placeOf(proxy)}`)));
    let requested = 0;
    const tickets = new (class extends KerberosTickets {
      override take(): Promise<never> {
        requested++;
        throw new Error("no ticket");
      }
    })({});
    for (const given of [file(t), {}]) {
      const { message, at } = await rejected(routes({ pac }), "proxy_auth_withheld", { ...given, tickets });
      assert.match(message, WITHHELD);
      assert.ok(message.replace(/ \(407.*/, "").split(" ").length <= 30, message);
      assert.equal(at, `http://${placeOf(proxy)}`);
    }
    assert.deepEqual([authorizations(proxy), requested], [[undefined, undefined], 0]);
  });
}

const REFUSALS: readonly (readonly [answer: string, fault: RouteFaultCode, sentence: string])[] = [
  [
    "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
    "proxy_forbidden",
    "ask its administrators to allow this destination",
  ],
  ["HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", "proxy_auth_unsupported", "it offers none that can be read"],
  ["", "proxy_closed", "check that it is an HTTP proxy, and what its log says"],
];

for (const [answer, fault, sentence] of REFUSALS) {
  test(`a proxy from an http:// script that refuses by ${answer.slice(9, 12) || "a close"} and does not ask gets nothing, and the fault says so`, async (t) => {
    await using proxy = await ScriptedProxy.start({ onRequest: (_request, socket) => socket.end(answer) });
    const pac = await serve(t, (_request, response) => response.end(pacScript(`PROXY ${placeOf(proxy)}`)));
    const withheld = "; the password was not asked for, and is withheld (a PAC script without TLS named it)";
    for (const [given, end] of [[file(t), withheld] as const, [{}, ""] as const]) {
      const { message } = await rejected(routes({ pac }), fault, given);
      assert.equal(message.split(sentence)[1]?.replace(/ \(40.*/, ""), end, message);
    }
    assert.deepEqual(authorizations(proxy), [undefined, undefined]);
  });
}

test("an http:// URL that redirects to https:// is one without TLS", async (t) => {
  await using proxy = await guarded({ offers: ["Basic realm=x"] });
  const { url, ca } = await serveTls(t, (_request, response) => response.end(pacScript(`PROXY ${placeOf(proxy)}`)));
  const pac = await serve(t, (_request, response) => response.writeHead(302, { location: url }).end());
  await rejected(routes({ pac }), "proxy_auth_withheld", { ...file(t), tls: () => ({ ca: ca() }) });
  assert.deepEqual(authorizations(proxy), [undefined]);
});

test("a SOCKS proxy that a PAC script of an http:// URL names is offered no password", async (t) => {
  const greetings: string[] = [];
  const proxy = await scripted(t, async (peer) => {
    const count = Number.parseInt((await peer.read(2)).slice(2), 16);
    const methods = await peer.read(count);
    greetings.push(methods);
    if (!methods.includes("02")) return peer.write("05ff");
    peer.write(USER_AUTH);
    await peer.readSome();
    peer.write(AUTHENTICATED);
  });
  const pac = await serve(t, (_request, response) => response.end(pacScript(`SOCKS5 127.0.0.1:${proxy.port}`)));
  const { message } = await rejected(routes({ pac }), "proxy_auth_withheld", file(t));
  assert.match(message, /^the proxy socks5h:\S+ wants a password, and is sent none because a PAC script/);
  assert.deepEqual(greetings, ["00"]);
});

test("proxies that a PAC script of an http:// URL names, and that want no password, lead on", async (t) => {
  await using http = await ScriptedProxy.start({ onRequest: (_, socket) => socket.write("HTTP/1.1 200 OK\r\n\r\n") });
  const socks = await scripted(t, async (peer) => {
    await peer.readRequestWithoutLogin();
    peer.write(reply(0));
  });
  for (const answer of [`PROXY ${placeOf(http)}`, `SOCKS5 127.0.0.1:${socks.port}`]) {
    const pac = await serve(t, (_request, response) => response.end(pacScript(answer)));
    (await routes({ pac }).open(TO, file(t), never())).socket.destroy();
  }
  assert.deepEqual(authorizations(http), [undefined]);
});

test("a password that the script itself names goes to the proxy that it names, however it was fetched", async (t) => {
  await using proxy = await guarded({ offers: ["Basic realm=x"] }, () => true);
  const pac = await serve(t, (_request, response) => response.end(pacScript(`PROXY its:own@${placeOf(proxy)}`)));
  (await routes({ pac }).open(TO, file(t), never())).socket.destroy();
  assert.deepEqual(authorizations(proxy), [undefined, `Basic ${Buffer.from("its:own").toString("base64")}`]);
});

function placeOf({ url }: ScriptedProxy): string {
  return `${url.host}:${url.port}`;
}

function file(t: TestContext): Pick<OpenRouteOptions, "credentials"> {
  const { credentials } = credentialsFile(t, "Mufasa:Circle of Life");
  return { credentials };
}
