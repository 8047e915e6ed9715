import assert from "node:assert/strict";
import { test } from "node:test";
import { parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { type Claimant, Claims } from "./routing-rules.ts";

const NOTHING = { hosts: [], cidrs: [], defaultRoute: false };

function certificate(cn: string): Claimant {
  const peer: PeerIdentity = {
    cn,
    o: [],
    dns: [],
    uri: [],
    serial: "01",
    fingerprint256: "AA",
    notAfter: new Date(),
    chain: [],
  };
  return { identity: `CN=${cn}`, peer };
}

const claims = new Claims([
  {
    ...NOTHING,
    identities: ["CN=control-plane"],
    hosts: ["172.30.1.5", "API.Example.", "*.svc.example", "FD00:0::5"],
    cidrs: ["172.31.0.0/16", "192.168.1.9/24"], // bits behind the prefix do not matter
  },
  {
    ...NOTHING,
    identities: ["CN=node-*", "SUB=system:serviceaccount:kube-system:*"],
    cidrs: ["10.0.0.0/8"],
    defaultRoute: true,
  },
]);

test("an agent may claim what the entries with its identity name, and nothing of others", () => {
  const [control, node, stranger] = [certificate("control-plane"), certificate("node-1"), certificate("other")];
  const token: Claimant = { identity: "SUB=system:serviceaccount:kube-system:agent", peer: undefined };
  const cases: [claimant: Claimant, query: string, objection: string | undefined][] = [
    [control, "ipv4=172.30.1.5&ipv6=fd00::5&host=api.example&host=a.svc.example", undefined],
    [control, "ipv4=172.31.7.7&cidr=172.31.4.0/22&cidr=172.31.0.0/16", undefined],
    [control, "ipv4=192.168.1.77&cidr=192.168.1.0/25", undefined],
    [control, "ipv4=172.30.1.6", "172.30.1.6"],
    [control, "host=svc.example", "svc.example"],
    [control, "host=b.a.svc.example", "b.a.svc.example"],
    [control, "cidr=172.30.0.0/15", "172.30.0.0/15"],
    // Its address is in one of the networks, and its length in that of another.
    [control, "cidr=192.168.1.0/20", "192.168.0.0/20"],
    [control, "cidr=::/0", "::/0"],
    [control, "default-route=true", "the default route"],
    [node, "ipv4=10.1.2.3&cidr=10.1.2.0/24&default-route=true", undefined],
    [node, "ipv4=172.30.1.5", "172.30.1.5"],
    [token, "cidr=10.0.0.0/8&default-route=true", undefined],
    [token, "host=api.example", "api.example"],
    [
      { identity: "SUB=system:serviceaccount:default:agent", peer: undefined },
      "default-route=true",
      "the default route",
    ],
    // A name in a certificate is no subject of a token.
    [{ ...certificate("x"), identity: token.identity }, "default-route=true", "the default route"],
    [stranger, "default-route=true", "the default route"],
    [stranger, "", undefined],
  ];
  for (const [claimant, query, objection] of cases) {
    assert.equal(claims.objection(parseIdentifiers([query]), claimant), objection, `${claimant.identity} ${query}`);
  }
});

test("hosts that somebody may claim are reserved", () => {
  for (const host of ["172.30.1.5", "172.31.0.1", "10.255.0.1", "fd00::5", "api.example", "x.svc.example"]) {
    assert.equal(claims.allows(host), true, host);
  }
  for (const host of ["172.30.1.6", "fd00::6", "example", "svc.example", "192.168.2.1"]) {
    assert.equal(claims.allows(host), false, host);
  }
});

test("an entry that cannot be read is refused with a sentence", () => {
  const entry = { ...NOTHING, identities: ["CN=a"] };
  for (const [texts, sentence] of [
    [{ ...entry, identities: ["a"] }, /^identity pattern "a": "a" has no "="/],
    [{ ...entry, hosts: ["a..b"] }, /^"a\.\.b" is no host name/],
    [{ ...entry, hosts: ["a*.example"] }, /a star stands alone for the first label/],
    [{ ...entry, cidrs: ["10.0.0.0/40"] }, /^the network "10\.0\.0\.0\/40": a prefix length here is at most 32/],
  ] as const) {
    assert.throws(() => new Claims([texts]), { message: sentence });
  }
});
