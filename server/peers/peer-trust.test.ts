import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { agentOf, fetchText, pki } from "../testing/server.ts";
import { type PeerTrust, PeerWatch } from "./peer-trust.ts";
import { ask, Fleet, peerLeaf } from "./testing/fleet.ts";

const IDENTITY: PeerIdentity = {
  o: [],
  dns: [],
  uri: [],
  serial: "01",
  fingerprint256: "x",
  notAfter: new Date(),
  chain: [],
};
const RENEWED: PeerIdentity = { ...IDENTITY, fingerprint256: "y" };

/** A peer whose first certificate is not accepted any more as soon as the test says so. */
function watched(t: TestContext) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const state = { isAccepted: true, isRevoked: false };
  const events: string[] = [];
  const judge = {
    objection: (identity: PeerIdentity) => (state.isAccepted || identity === RENEWED ? undefined : "it has expired"),
    isRevoked: () => state.isRevoked,
  } satisfies Pick<PeerTrust, "objection" | "isRevoked">;
  const watch = new PeerWatch(IDENTITY, judge as unknown as PeerTrust, {
    onAsk: () => void events.push("asked"),
    onUntrusted: ({ message }) => void events.push(`ended: ${message}`),
  });
  t.after(() => watch.close());
  return { state, events, watch, tick: (ms: number) => t.mock.timers.tick(ms) };
}

test("a peer whose certificate is not accepted any more is asked for another one, and its link ends without", (t) => {
  const { state, events, tick } = watched(t);
  tick(60_000);
  assert.deepEqual(events, []);
  state.isAccepted = false;
  tick(30_000);
  assert.deepEqual(events, ["asked"]);
  tick(10_000);
  assert.deepEqual(events, ["asked", "ended: it has expired"]);
});

test("a peer that shows another certificate in time keeps its link", (t) => {
  const { state, events, watch, tick } = watched(t);
  state.isAccepted = false;
  watch.verifyAgain();
  watch.verifyAgain();
  watch.renewed(RENEWED);
  tick(60_000);
  assert.deepEqual(events, ["asked"]);
});

test("the link of a peer whose certificate is revoked ends at once", (t) => {
  const { state, events, watch } = watched(t);
  watch.endIfRevoked();
  state.isRevoked = true;
  watch.endIfRevoked();
  assert.deepEqual(events, ["ended: its certificate is revoked"]);
});

test("a link that has ended is watched no longer", (t) => {
  const { state, events, watch, tick } = watched(t);
  state.isAccepted = false;
  watch.verifyAgain();
  watch.close();
  tick(120_000);
  assert.deepEqual(events, ["asked"]);
});

const DAY = 86_400_000;

/** The problems that `culvert status` shows behind `!`. */
async function problemsOf(server: Awaited<ReturnType<Fleet["start"]>>): Promise<string[]> {
  const { text } = await fetchText(server.addresses.admin?.port, "/status");
  return JSON.parse(text).problems;
}

test("a certificate that other servers refuse is reported at the start, in readyz and in the status", async () => {
  const past = { notBefore: new Date(Date.now() - 2 * DAY), notAfter: new Date(Date.now() - DAY) };
  const rows: [string, CertificateAndKey, RegExp][] = [
    [
      "a role that is not of servers",
      await pki.ca.issue(peerLeaf("srv-1", { o: ["other"] })),
      /O=other, not among --peer-identities/,
    ],
    ["another CA", await pki.other.issue(peerLeaf("srv-1")), /comes from no CA in --peer-ca-cert/],
    ["no client's usage", await pki.ca.issue(peerLeaf("srv-1", { usage: "server" })), /has no clientAuth/],
    ["no server's usage", await pki.ca.issue(peerLeaf("srv-1", { usage: "client" })), /has no serverAuth/],
    ["expired", await pki.ca.issue(peerLeaf("srv-1", past)), /expired/],
  ];
  for (const [what, by, sentence] of rows) {
    await using fleet = new Fleet();
    const server = await fleet.start("srv-1", {}, by);
    const lines = server.lines.filter(({ msg }) => msg.includes("--peer-cert"));
    assert.deepEqual(
      lines.map(({ level }) => level),
      ["error"],
      what,
    );
    assert.match(lines[0]?.msg ?? "", sentence);
    assert.match(lines[0]?.msg ?? "", /peers refuse this server/);
    const ready = await (await fetch(`http://127.0.0.1:${server.addresses.admin?.port}/readyz?verbose`)).text();
    assert.match(ready, new RegExp(`peer-certificate.*${sentence.source}`), what);
    assert.match((await problemsOf(server)).join("\n"), new RegExp(`^peer-certificate: .*${sentence.source}`), what);
  }
});

test("certificate and CA for peers are in the metrics of what expires, and a good certificate is no line", async () => {
  await using fleet = new Fleet();
  const server = await fleet.start("srv-1");
  assert.deepEqual(
    server.lines.filter(({ msg }) => msg.includes("--peer-")),
    [],
  );
  const text = await server.metrics.registry.metrics();
  for (const role of ["peers_cert", "peers_ca"]) {
    assert.match(
      text,
      new RegExp(`^culvert_certificate_expiry_timestamp_seconds{role="${role}",cluster=""} [1-9]`, "m"),
    );
  }
  assert.match(text, /^culvert_server_directory_up 1$/m);
});

test("a peer whose certificate has expired is named with its option in the log, and not to callers", async () => {
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1", { agentWaitMs: 0 });
  const past = { notBefore: new Date(Date.now() - 2 * DAY), notAfter: new Date(Date.now() - DAY) };
  const far = await fleet.start("srv-2", {}, await pki.ca.issue(peerLeaf("srv-1", past)));
  await agentOf(far, { agentId: "blue" });
  await fleet.holders("srv-2");
  assert.match(
    (await ask(near)).status,
    /^HTTP\/1\.1 502 server "srv-2" cannot be reached from server "srv-1": the log of "srv-1" says why$/,
  );
  const line = near.lines.find(({ msg }) => msg === "peer not reached");
  assert.match(String(line?.["reason"]), /its certificate, or its CA's, expired on \S+: renew its --peer-cert/);
});

test("what hinders a directory is said to callers, in readyz and in the status, and such a server is not ready without an agent", async () => {
  await using fleet = new Fleet();
  const server = await fleet.start("srv-1", { agentWaitMs: 0, readyNeedsAgent: true });
  const url = `http://127.0.0.1:${server.addresses.admin?.port}/readyz?verbose`;
  const ready = await fetch(url);
  assert.equal(ready.status, 200, "others can be asked");
  assert.deepEqual(await problemsOf(server), []);
  await ready.text();
  fleet.hub.hindered = { faults: ["NATS refuses"], trouble: "other servers could not be asked", canAsk: false };
  await until(async () => (await fetch(url)).status === 503);
  assert.match(await (await fetch(url)).text(), /directory.*warning: NATS refuses/);
  assert.match((await problemsOf(server)).join("\n"), /^directory: .*NATS refuses/);
  assert.match((await ask(server)).status, /^HTTP\/1\.1 503 no agent .*; other servers could not be asked$/);
  assert.match(await server.metrics.registry.metrics(), /^culvert_server_directory_up 0$/m);
  Object.assign(fleet.hub, { hindered: undefined, silent: true });
  const silent = /^HTTP\/1\.1 503 no agent .*; a server that may have one does not respond:/;
  await until(async () => silent.test((await ask(server)).status));
});
