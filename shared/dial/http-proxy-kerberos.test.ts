import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { type Kerberos, KerberosTickets, kerberosFrom, type LoadKerberos } from "./auth/kerberos.ts";
import type { ProxyOptions } from "./http-proxy.ts";
import { formatProxy, KdcTimeout } from "./proxy-route.ts";
import { authorizations, BASIC, credentials, guarded, refuse } from "./testing/guarded-proxy.ts";
import { faultOf, open, ScriptedProxy } from "./testing/scripted-proxy.ts";

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

/** Opens a connection with Kerberos from this library. */
function openBy(loadKerberos: LoadKerberos, proxy: ScriptedProxy, options: Partial<ProxyOptions> = {}) {
  const signal = AbortSignal.timeout(20_000);
  return open(proxy, { tickets: new KerberosTickets({}), ...options }, signal, loadKerberos);
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
    const onSent = () => assert.fail("a ticket is no password");
    const login = { onSent, onAccepted: () => {}, mayResend: () => true };
    const opening = openBy(fakeKerberos("done", services), proxy, { credentials, login });
    if (ends === "well") (await opening).destroy();
    else assert.equal((await faultOf(opening)).message, `the proxy ${formatProxy(proxy.url)} ${ends}`);
    assert.deepEqual(authorizations(proxy), [undefined, "Negotiate client", "Negotiate moreclient"]);
    assert.deepEqual([proxy.connections, services], [1, ["HTTP@127.0.0.1"]]);
  }
});

test("a ticket that is refused is not followed by a password, and no proxy asks for proofs without end", async () => {
  await using proxy = await guarded({ offers: ["Negotiate", "Basic realm=x"] });
  const fault = await faultOf(openBy(fakeKerberos("done"), proxy, { credentials }));
  assert.deepEqual([fault.fault, proxy.requests.length], ["proxy_auth_refused", 2]);
  assert.match(fault.message, /refuses the Kerberos ticket/);
  await using endless = await guarded({ offers: ["Negotiate more"] });
  const asked = await faultOf(openBy(fakeKerberos("done"), endless));
  assert.deepEqual([asked.fault, endless.requests.length], ["proxy_auth_refused", 3]);
  assert.match(asked.message, /keeps asking for credentials/);
  await using forger = await guarded(({ index }) => ({ offers: [index === 0 ? "Negotiate" : "Negotiate forged"] }));
  const forged = await faultOf(openBy(fakeKerberos("done"), forger));
  assert.equal(forged.fault, "proxy_auth_unsupported");
  assert.match(forged.message, /cannot be answered by Negotiate: the checksum is wrong \(407/);
});

test("where there is no ticket a weaker scheme does, and where there is none the sentence says how to get one", async () => {
  const noTicket: LoadKerberos = async () => ({
    GSS_MECH_OID_SPNEGO: 6,
    initializeClient: () => Promise.reject(new Error(`No credentials\n\x1b[31m${" were supplied".repeat(1_000)}`)),
  });
  await using both = await guarded({ offers: ["Negotiate", "Basic realm=x"] }, (sent) => sent === BASIC);
  (await openBy(noTicket, both, { credentials })).destroy();
  const required = await faultOf(openBy(noTicket, both));
  assert.equal(required.fault, "proxy_auth_required");
  assert.match(
    required.message,
    /there is no Kerberos ticket for it: run kinit, or name a keytab in KRB5_CLIENT_KTNAME; .* \(GSS-API says: No credentials \[31m were /,
  );
  assert.match(required.message, /^[\x20-\x7e]{1,1000}$/);
  await using only = await guarded({ offers: ["Negotiate"] });
  const tickets = new KerberosTickets({ KRB5_CLIENT_KTNAME: "/nowhere/old.keytab" });
  await faultOf(openBy(noTicket, only, { tickets }));
  const waits = await faultOf(openBy(noTicket, only, { tickets }));
  assert.match(waits.message, /it offers Negotiate: the keytab \S+old.keytab gave no .* not tried again for 2 min/);
  const absent = await faultOf(openBy(kerberosFrom("kerberos-of-nobody"), only, { credentials }));
  assert.equal(absent.fault, "proxy_auth_unsupported");
  assert.match(absent.message, /kerberos is not installed: run "npm install --prefix \S+ kerberos@7" \(/);
});

test("a Kerberos request that never ends is named when the time is over", async () => {
  await using proxy = await guarded({ offers: ["Negotiate"] });
  const abort = new AbortController();
  const stuck: LoadKerberos = () => {
    setImmediate(() => abort.abort());
    return new Promise(() => {});
  };
  const fault = await faultOf(open(proxy, { tickets: new KerberosTickets({}) }, abort.signal, stuck));
  assert.equal(fault.fault, "timeout");
  assert.ok(fault instanceof KdcTimeout);
  assert.match(fault.message, /took too long because Kerberos gave no ticket: check that its KDC can be reached$/);
});

test("no KDC is blamed where the proxy asks for a password alone", async () => {
  await using proxy = await guarded({ offers: ["Basic realm=x"] }, (sent) => sent === BASIC);
  const abort = new AbortController();
  const never = (): Promise<never> => {
    setImmediate(() => abort.abort());
    return new Promise(() => {});
  };
  const late = await faultOf(open(proxy, { credentials: never }, abort.signal));
  assert.ok(!(late instanceof KdcTimeout));
  assert.match(late.message, /took too long to check the user and the password/);
});

test("behind a KDC that is slower than an attempt, the next attempt reaches the weaker scheme", async () => {
  await using proxy = await guarded({ offers: ["Negotiate", "Basic realm=x"] }, (sent) => sent === BASIC);
  const tickets = new KerberosTickets({});
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
  const late = await faultOf(open(proxy, { credentials, tickets }, abort.signal, slow));
  assert.match(late.message, /took too long because Kerberos gave no ticket/);
  const waiting = openBy(slow, proxy, { credentials, tickets });
  await until(() => proxy.requests.length === 2);
  fail(new Error("cannot contact any KDC"));
  (await waiting).destroy();
  (await openBy(slow, proxy, { credentials, tickets })).destroy();
  assert.deepEqual(authorizations(proxy), [undefined, undefined, BASIC, undefined, BASIC]);
});
