import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { before, test } from "node:test";
import tls from "node:tls";
import { DialFault, isUnknownIssuer } from "../faults/faults.ts";
import { InnerServers, InnerTlsFault } from "../link/inner-tls.ts";
import { Authority, type CertificateAndKey, type LeafOptions } from "../pki/certificates.ts";
import { certificateOf } from "../pki/testing/certificates.ts";
import { failure } from "./testing/ends.ts";
import { dial, link, SOURCE, TIMEOUT_MS } from "./testing/inner-ends.ts";

const DAY = 86_400_000;
const CODE_SIGNING = "1.3.6.1.5.5.7.3.3";
const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";

/** `culvert pki` calls each CA the same. */
const [NAME, OTHER] = ["culvert cluster CA", "Another CA"] as const;
let ours: Authority;
let namesake: Authority;
let other: Authority;
before(async () => {
  [ours, namesake, other] = await Promise.all([
    Authority.create(NAME),
    Authority.create(NAME),
    Authority.create(OTHER),
  ]);
});

/** The certificate that a server shows, the agent's --ca-cert, and the fault that is found. */
interface Row {
  readonly leaf: () => Promise<CertificateAndKey>;
  /** Absent: ours. */
  readonly ca?: () => string | undefined;
  readonly kind: string;
  readonly says: RegExp;
}

const leaf = (change: Partial<LeafOptions> = {}) =>
  ours.issue({ cn: "server", names: ["localhost"], usage: "server", ...change });
const fromNow = (days: number): Date => new Date(Date.now() + days * DAY);

const ROWS: Readonly<Record<string, Row>> = {
  "no --ca-cert, and a private CA": {
    leaf,
    ca: () => undefined,
    kind: "unknown_ca none_given",
    says: /^the server's certificate is signed by "culvert cluster CA", and no --ca-cert is given: .*; or something on /,
  },
  "--ca-cert of another CA": {
    leaf,
    ca: () => other.cert,
    kind: "unknown_ca another",
    says: /^the server's certificate is signed by "culvert cluster CA", which is not in --ca-cert: .*; or something on /,
  },
  "--ca-cert of another CA, and the server shows its own": {
    ca: () => other.cert,
    kind: "unknown_ca another",
    leaf: async () => {
      const { cert, key } = await leaf();
      return { cert: cert + ours.cert, key };
    },
    says: /^the server's certificate is signed by "culvert cluster CA", which is not in --ca-cert: /,
  },
  "a CA of the same name, with another key": {
    leaf,
    ca: () => namesake.cert,
    kind: "unknown_ca same_name",
    says: /by another CA than the one in --ca-cert: same name \("culvert cluster CA"\), another key; /,
  },
  "a certificate that has signed itself": {
    leaf: () => certificateOf({ cn: "localhost", isCa: false }),
    kind: "unknown_ca self_signed",
    says: /^the server's certificate "localhost" has signed itself, and is not in --ca-cert: /,
  },
  "a CA's own certificate": {
    leaf: async () => other,
    kind: "unknown_ca self_signed",
    says: /^the server's certificate "Another CA" has signed itself, and is not in --ca-cert: /,
  },
  "a certificate for other names": {
    leaf: () => leaf({ names: ["a.example", "b.example", "10.0.0.7", "d", "e"] }),
    kind: "wrong_name",
    says: /is for a\.example, b\.example, 10\.0\.0\.7 and 2 more, not for localhost: .* in --server, or issue .*--cluster-cert/,
  },
  "a certificate that is not valid yet": {
    leaf: () => leaf({ notBefore: fromNow(1) }),
    kind: "server_not_yet_valid",
    says: /^the server's certificate is not valid before 20\S+Z, and this machine's clock says 20\S+Z: compare clocks, /,
  },
  "a certificate that has expired": {
    leaf: () => leaf({ notBefore: fromNow(-3), notAfter: fromNow(-1) }),
    kind: "server_expired",
    says: /^the server's certificate expired on 20\S+Z, by this machine's clock, which says 20\S+Z: renew .*--cluster-cert/,
  },
  "a client's certificate": {
    leaf: () => leaf({ usage: "client" }),
    kind: "wrong_usage",
    says: /^the server's certificate is a client's: its extended key usage has no serverAuth; .*--cluster-cert again/,
  },
  "a certificate for something else": {
    leaf: () => certificateOf({ cn: "localhost", isCa: false, by: ours, extendedUsages: [CODE_SIGNING] }),
    kind: "wrong_usage",
    says: /^the server's certificate is not for servers: its extended key usage has no server/,
  },
};

/** Why an agent has no TLS with a server that shows this. */
async function outside(shown: CertificateAndKey, ca: string | undefined): Promise<Error> {
  const server = tls.createServer(shown, (socket) => socket.on("error", () => {}).end());
  server.on("tlsClientError", () => {}).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const to = { tls: { ...(ca !== undefined && { ca }) }, trust: { ca } };
    return await failure((server.address() as AddressInfo).port, to);
  } finally {
    server.close();
  }
}

/** The same of inner TLS. */
async function inside(shown: CertificateAndKey, ca: string | undefined): Promise<Error | undefined> {
  const ends = link();
  const material = { ...shown, ca: ours.cert, notAfter: new Date() };
  const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE).catch(() => {});
  const error = await dial(ends.agent, { ca }, { host: "localhost" }).then(
    () => undefined,
    (why: Error) => why,
  );
  await accepted;
  return error;
}

function kindOf(fault: unknown): string {
  if (isUnknownIssuer(fault)) return `${fault.fault} ${fault.facts.relation}`;
  return fault instanceof DialFault ? fault.fault : String(fault);
}

for (const [title, { leaf, ca = () => ours.cert, kind, says }] of Object.entries(ROWS)) {
  test(`${title}: an agent says it in 30 words, outside and inside of inner TLS`, async () => {
    const shown = await leaf();
    const error = await outside(shown, ca());
    assert.equal(kindOf(error), kind, error.message);
    assert.match(error.message, says);
    assert.ok(error.message.replace(NAME, "X").split(" ").length <= 30, error.message);
    const inner = await inside(shown, ca());
    assert.ok(inner instanceof InnerTlsFault, inner?.message);
    assert.equal(kindOf(inner.fault), kind);
    assert.match(
      inner.message.replace(/^inner TLS: /, ""),
      new RegExp(says.source.replace("something on ", "some.* on ")),
    );
  });
}

test("a certificate without an extended key usage, or with serverAuth among others, is a server's", async () => {
  for (const extendedUsages of [undefined, [CODE_SIGNING, SERVER_AUTH]]) {
    const wish = { cn: "localhost", isCa: false, by: ours, ...(extendedUsages && { extendedUsages }) };
    const shown = await certificateOf(wish);
    assert.doesNotMatch(kindOf(await outside(shown, ours.cert)), /^(wrong_usage|unknown_ca)/);
    assert.equal(await inside(shown, ours.cert), undefined);
  }
});

test("a CA that has expired is named in place of the server's certificate", async () => {
  const old = await Authority.create("Old CA", -1);
  const shown = await old.issue({ cn: "server", names: ["localhost"], usage: "server", notAfter: fromNow(1) });
  const error = await outside(shown, old.cert);
  assert.equal(kindOf(error), "server_expired");
  assert.match(error.message, /^the CA "Old CA" of the server's certificate expired on 20\S+Z, .* and in --ca-cert$/);
});
