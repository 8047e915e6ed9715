import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import tls from "node:tls";
import { DialFault, isUnknownIssuer } from "../../shared/faults/faults.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import { HELLO, KEEPALIVE_MS, testCertificate } from "../../shared/link/testing/ends.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { listenFor } from "../testing/listener.ts";
import { retryAfter } from "./retry.ts";
import {
  dialMiddlebox,
  dialServer,
  dialTerminators,
  middleboxCa,
  outerTrust,
  type TerminatorRule,
  type TlsTerminator,
  UnseenCertificate,
} from "./tls-terminator.ts";

type InnerTls = TerminatorRule["options"]["innerTls"];

/** Which ends are tried, as long as each is found to be somebody else's, and which of them is told of. */
async function tried(innerTls: InnerTls, outerCa: readonly string[] | undefined, intercepted: boolean) {
  const ends: TlsTerminator[] = [];
  const told: TlsTerminator[] = [];
  const failed = dialTerminators(
    { options: { innerTls }, path: { intercepted } },
    { ca: "server", ...(outerCa && { outerCa }) },
    async (end) => {
      ends.push(end);
      throw new DialFault("unknown_ca", "untrusted", { facts: { by: `CA of the ${end}` } });
    },
    (end) => told.push(end),
  );
  await assert.rejects(failed, ({ facts }: DialFault) => facts.by === `CA of the ${ends.at(-1)}`);
  assert.deepEqual(told, ends.slice(0, 1));
  return ends;
}

const ROWS: readonly [InnerTls, outerCa: readonly string[] | undefined, intercepted: boolean, ends: TlsTerminator[]][] =
  [
    ["never", undefined, false, ["server"]],
    ["never", ["box"], true, ["server"]],
    ["auto", undefined, false, ["server"]],
    ["auto", undefined, true, ["server"]],
    ["auto", ["middlebox"], false, ["server", "middlebox"]],
    ["auto", ["box"], true, ["middlebox", "server"]],
    ["always", undefined, false, ["middlebox"]],
    ["always", ["box"], true, ["middlebox"]],
  ];

for (const [innerTls, outerCa, intercepted, ends] of ROWS) {
  const where = `--inner-tls=${innerTls}, ${outerCa ? "an" : "no"} --outer-ca, ${intercepted ? "a box" : "nobody"} found last`;
  test(`where TLS may end: ${where}`, async () => assert.deepEqual(await tried(innerTls, outerCa, intercepted), ends));
}

test("any other fault than somebody else at the end is the end of it", async () => {
  const rule = { options: { innerTls: "auto" }, path: { intercepted: false } } as const;
  const ends: TlsTerminator[] = [];
  const failed = dialTerminators(
    rule,
    { outerCa: ["box"] },
    async (end) => {
      ends.push(end);
      throw new Error("refused");
    },
    () => assert.fail("nobody was found"),
  );
  await assert.rejects(failed, /refused/);
  assert.deepEqual(ends, ["server"]);
});

test("a link begins at a middlebox of --outer-ca; at one of --ca-cert where that is wanted always, or where it goes on", () => {
  const credentials = { ca: "server", outerCa: ["box"] };
  const path = { intercepted: false };
  assert.deepEqual(middleboxCa({ options: { innerTls: "auto" }, path }, credentials), ["box"]);
  assert.deepEqual(middleboxCa({ options: { innerTls: "always" }, path }, credentials), ["server", "box"]);
  assert.deepEqual(outerTrust(credentials), ["server", "box"]);
  assert.equal(outerTrust({}), undefined, "Node's own");
  assert.ok((outerTrust({ outerCa: ["box"] })?.length ?? 0) > 100, "with the well-known ones");
});

/** Somebody who opens TLS 1.2, where a client's certificate comes before the client has verified the server's. */
async function otherTerminator(t: TestContext) {
  const { leaf } = await testCertificate();
  const shown: string[] = [];
  const server = tls.createServer({ ...leaf, maxVersion: "TLSv1.2", requestCert: true, rejectUnauthorized: false });
  const seen = new Promise<void>((resolve) => {
    server.on("secureConnection", (socket) => {
      const { subject } = socket.on("error", () => {}).getPeerCertificate();
      if (subject !== undefined) shown.push(String(subject.CN));
      resolve();
    });
  });
  return { port: await listenFor(t, server), shown, seen };
}

test("our certificate is shown to nobody but the server, where it is known or likely that somebody is in between", async (t) => {
  const ours = await Authority.create("ours");
  const pair = await ours.issue({ cn: "agent", usage: "client" });
  const rows: readonly [InnerTls, outerCa: readonly string[] | undefined, intercepted: boolean, shown: string[]][] = [
    ["auto", [ours.cert], false, []],
    ["auto", undefined, true, []],
    ["auto", undefined, false, ["agent"]],
    ["never", [ours.cert], true, ["agent"]],
  ];
  for (const [innerTls, outerCa, intercepted, expected] of rows) {
    const { port, shown, seen } = await otherTerminator(t);
    const to = { host: "localhost", port, path: "/", tls: {}, keepaliveMs: KEEPALIVE_MS, timeoutMs: 5_000 };
    const credentials = { ca: ours.cert, ...pair, ...(outerCa && { outerCa }) };
    const dialled = dialServer(to, { options: { innerTls }, path: { intercepted } }, credentials, (ready) =>
      dialCarrier({ ...ready, hello: () => HELLO }),
    );
    await assert.rejects(dialled, isUnknownIssuer);
    await seen;
    assert.deepEqual(shown, expected, `${innerTls}, ${intercepted}`);
  }
});

test("a certificate that was not seen is refused as before, and the cure is beside the server's sentence", () => {
  const refusal = new LinkRefused({ status: 401, reason: "no client certificate was sent", retryAfterMs: 7_000 });
  const options = { baseMs: 250, capMs: 30_000, random: () => 0 };
  const [before, now] = [refusal, new UnseenCertificate(refusal)].map((error) => retryAfter(error, 0, 0, options));
  assert.deepEqual({ ...now, reason: "", fault: "" }, { ...before, reason: "", fault: "" });
  assert.match(
    now?.reason ?? "",
    /\(401\): no client certificate was sent; the agent sent one, .*--outer-ca .*--ca-cert/,
  );
});

test("a middlebox gets no credential, and a 401 behind it says that inner TLS is missing, for a new link and a resume", async () => {
  const to = { tls: { ca: "server", cert: undefined } } as unknown as Parameters<typeof dialMiddlebox>[0];
  const shown: unknown[] = [];
  const refused = dialMiddlebox(to, ["box"], async ({ tls, headers }) => {
    shown.push(tls?.ca, tls?.cert, headers);
    throw new LinkRefused({ status: 401, reason: "a client certificate is required", retryAfterMs: 7 });
  });
  await assert.rejects(refused, ({ reason, retryAfterMs }: LinkRefused) => {
    assert.match(reason, /^a client certificate is required; it seems to take no inner TLS/);
    return retryAfterMs === 7;
  });
  assert.deepEqual(shown, [["box"], undefined, undefined]);
});
