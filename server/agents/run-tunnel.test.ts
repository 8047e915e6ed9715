import assert from "node:assert/strict";
import { test } from "node:test";
import { type PeerIdentity, parsePattern } from "../../shared/tls/identity.ts";
import { ALL_ALIKE, Claims, routingRules } from "../clusters/routing-rules.ts";
import type { Credential } from "../tunnels/links.ts";
import { claimedIdentifiers, requireAcceptedHello } from "./run-tunnel.ts";

const PEER: PeerIdentity = {
  ...{ cn: "agent", o: [], dns: [], uri: [], serial: "01", fingerprint256: "AA" },
  ...{ notAfter: new Date(), chain: [] },
};
const BY_CERTIFICATE: Credential = { identity: "CN=agent", peer: PEER, ca: "the CA", token: undefined };
const RULES = {
  ca: "the CA",
  identities: [parsePattern("CN=agent")],
  trust: { crlFault: (): string | undefined => undefined },
};

test("a credential that was verified before the hello must be accepted by the present rules", () => {
  const accept = (credential: Credential, more: Partial<typeof RULES> = {}) =>
    requireAcceptedHello({ cluster: "blue" }, credential, { name: "blue" }, { ...RULES, ...more });
  accept(BY_CERTIFICATE);
  const changed = /trust of this cluster has changed/;
  assert.throws(() => accept(BY_CERTIFICATE, { ca: "another CA" }), changed);
  assert.throws(() => accept(BY_CERTIFICATE, { identities: [parsePattern("CN=other")] }), changed);
  assert.throws(() => accept(BY_CERTIFICATE, { trust: { crlFault: () => "is revoked" } }), changed);
  accept({ identity: "SUB=agent", peer: undefined, ca: undefined, token: undefined }, { ca: "another CA" });
});

test("an agent that claims what is another's, or what is no identifier, is refused by code", () => {
  const claims = new Claims([{ identities: ["CN=agent"], hosts: ["172.30.1.5"], cidrs: [], defaultRoute: false }]);
  const cluster = { name: "blue", rules: { ...ALL_ALIKE, strategies: ["destHost"], claims } } as const;
  const taken = claimedIdentifiers({ identifiers: { ipv4: ["::ffff:172.30.1.5"] } }, BY_CERTIFICATE, cluster);
  assert.deepEqual(taken, { ipv4: ["172.30.1.5"] });
  assert.deepEqual(claimedIdentifiers({}, BY_CERTIFICATE, cluster), {});
  for (const [identifiers, closeCode, reason] of [
    [
      { ipv4: ["172.30.1.6"] },
      4403,
      'this agent may not claim 172.30.1.6 in cluster "blue" (agents.claims of its document)',
    ],
    [
      { defaultRoute: true },
      4403,
      'this agent may not claim the default route in cluster "blue" (agents.claims of its document)',
    ],
    [
      { host: ["a b"] },
      4400,
      'bad hello message: identifiers: host="a b" is no host name: letters, digits, - and _ between dots',
    ],
    [
      {
        host: Array.from({ length: 40 }, (_, i) => `h${i}`),
        cidr: Array.from({ length: 25 }, (_, i) => `10.${i}.0.0/16`),
      },
      4400,
      "bad hello message: identifiers: these are 65 identifiers, and at most 64 are allowed",
    ],
  ] as const) {
    assert.throws(() => claimedIdentifiers({ identifiers }, BY_CERTIFICATE, cluster), { closeCode, reason });
  }
});

test("what may be claimed is said by documents alone, and matters only where strategies go by it", () => {
  const flags = { strategies: ["destHost", "default"], strict: true } as const;
  const side = {};
  const claims = new Claims([]);
  assert.deepEqual(routingRules(side, flags, true), { ...flags, claims: undefined });
  assert.deepEqual(routingRules(side, flags, false).claims?.texts, []);
  assert.equal(routingRules({ ...side, claims }, flags, false).claims, claims);
  assert.equal(routingRules({ ...side, strategies: ["default"] }, flags, false).claims, undefined);
  const own = { strategies: ["cidr"], strictIdentifiers: false } as const;
  assert.deepEqual(routingRules({ ...side, ...own, claims }, flags, false), {
    strategies: ["cidr"],
    strict: false,
    claims,
  });
});
