import assert from "node:assert/strict";
import net, { type Server } from "node:net";
import { type TestContext, test } from "node:test";
import tls from "node:tls";
import { DialFault } from "../../shared/faults/faults.ts";
import { dialFault, SECURING } from "../../shared/link/dial-faults.ts";
import { testCertificate } from "../../shared/link/testing/ends.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { optionsOf } from "../testing/context.ts";
import { listenFor } from "../testing/listener.ts";
import { type LookOptions, lookAt, refusalFinding, type TunnelDial, tlsFault } from "./tls-fault.ts";

test("what is no TLS is found at the server, and behind a proxy at the proxy, with who named it", async () => {
  const dial = { at: "server:443" } as TunnelDial;
  const plain = Object.assign(new Error("wrong version number"), { code: "ERR_SSL_WRONG_VERSION_NUMBER" });
  const findingOf = async (proxy?: { at: string; from: string }) => {
    const error = dialFault(plain, { step: SECURING, host: "server", proxy });
    return (await tlsFault(error, undefined, dial)).finding;
  };
  assert.deepEqual(await findingOf(), { culprit: "no_tls", by: "server:443" });
  assert.deepEqual(await findingOf({ at: "http://p:3128", from: "HTTPS_PROXY" }), {
    culprit: "no_tls",
    by: "http://p:3128",
    proxyFrom: "HTTPS_PROXY",
  });
});

test("a refusal of credentials that are out of their validity period may be the clock's fault", () => {
  const outOfTime = [
    ["certificate_expired", "ended"],
    ["token_expired", "ended"],
    ["certificate_not_yet_valid", "early"],
    ["token_not_yet_valid", "early"],
    ["certificate_missing", undefined],
    [undefined, undefined],
  ] as const;
  for (const [fault, expected] of outOfTime) {
    // The sentence decides nothing, whatever it says.
    const refusal = new LinkRefused({ status: 401, reason: "it expired", note: "; a note of the agent", fault });
    const finding = { culprit: "not_admitted", by: "it expired", ...(expected && { outOfTime: expected }) };
    assert.deepEqual(refusalFinding(refusal), finding);
  }
});

/** Without what ends a look that nobody answers, it would last for ever. */
const IN_TIME = { timeout: 10_000 };

async function lookedAt(t: TestContext, server: Server) {
  const port = await listenFor(t, server);
  const options: LookOptions = { host: "localhost", port, path: "/", tls: {} };
  return { options, open: () => net.connect(port, "127.0.0.1") };
}

test(
  "of a box that takes the handshake and never answers, the chain is seen when the time is over",
  IN_TIME,
  async (t) => {
    const { leaf } = await testCertificate();
    const time = new AbortController();
    const box = tls.createServer(leaf, (socket) => socket.on("error", () => {}).once("data", () => time.abort()));
    const { options, open } = await lookedAt(t, box);
    const seen = await lookAt(open(), options, time.signal);
    assert.deepEqual([seen.chain[0]?.subject, seen.time, seen.isCallersPort], ["CN=localhost", undefined, false]);
  },
);

test("a middlebox that does not answer the handshake is looked at until the time is over", IN_TIME, async (t) => {
  const time = new AbortController();
  const box = net.createServer((socket) => socket.once("data", () => time.abort()));
  const { options, open } = await lookedAt(t, box);
  await assert.rejects(lookAt(open(), options, time.signal), { name: "AbortError" });
});

test("a middlebox to which the way took all the time is not looked at", IN_TIME, async (t) => {
  const { options, open } = await lookedAt(t, net.createServer());
  await assert.rejects(lookAt(open(), options, AbortSignal.abort()), { name: "AbortError" });
});

test("a second look at what never answers ends within the time of a step, with the first error", IN_TIME, async (t) => {
  const { leaf } = await testCertificate();
  const box = tls.createServer(leaf, (socket) => socket.on("error", () => {}).resume());
  const { options, open } = await lookedAt(t, box);
  const dial = {
    at: "server:443",
    terms: { credentials: {}, timeoutMs: 200 },
    context: { options: optionsOf(), server: options, route: { open: async () => ({ socket: open() }) }, path: {} },
  } as unknown as TunnelDial;
  const cause = Object.assign(new Error("certificate has expired"), { code: "CERT_HAS_EXPIRED" });
  const ended = new DialFault("server_expired", "the server's certificate expired", { facts: { by: "server" }, cause });
  const { finding, message } = await tlsFault(ended, undefined, dial);
  assert.equal(finding.culprit, "server_expired");
  assert.match(message, /^the server's certificate expired/);
});
