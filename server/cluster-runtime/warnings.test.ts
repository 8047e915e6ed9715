import assert from "node:assert/strict";
import { test } from "node:test";
import { Authority } from "../../shared/pki/certificates.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { parsePattern } from "../../shared/tls/identity.ts";
import type { AgentSide, ClusterSide } from "../clusters/cluster.ts";
import { pki } from "../testing/server.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";
import { clusterOf, runtimeOf } from "./testing/clusters.ts";
import { localClaimsWarning, sharedCaWarning, unreachedStrategiesWarning, warningsOf } from "./warnings.ts";

const certificate = () => ({ ...pki.server, notBefore: new Date(), notAfter: new Date() });
const side = (more: Partial<ClusterSide> = {}) => ({
  sni: ["x"],
  certificate: certificate(),
  ca: pki.ca.cert,
  ...more,
});
const named = [parsePattern("CN=a")];

function served(
  name: string,
  agents: Partial<AgentSide>,
  callers: Partial<ClusterSide>,
  more: Parameters<typeof runtimeOf>[1] = {},
): ClusterRuntime {
  const made = runtimeOf(clusterOf(name, { agents, callers }), more);
  made.close();
  return made;
}

test("a document with one CA for both roles causes a warning with its file and the identities that it leaves out", () => {
  assert.match(
    sharedCaWarning(served("blue", side(), side())) ?? "",
    /^callers and agents of cluster "blue" \(blue\.yaml\) come from the same CA: give callers\.identities and agents\.identities,/,
  );
  const half = served("blue", side({ identities: named }), side({ ca: `\n${pki.ca.cert.replaceAll("\n", "\r\n")}` }));
  assert.match(sharedCaWarning(half) ?? "", /: give callers\.identities, or/);
});

test("strategies of a document that default keeps from being reached are named with its file", () => {
  const of = (agents: object) => unreachedStrategiesWarning(served("blue", { ...side(), ...agents }, side()));
  const rule = /^blue\.yaml: cluster "blue": agents\.strategies: .* destHost, cidr after it has no effect/;
  assert.match(of({ strategies: ["default", "destHost", "cidr"] }) ?? "", rule);
  assert.equal(of({ strategies: ["destHost", "default"] }), undefined);
  assert.equal(of({}), undefined);
});

test("one CA is known by its key in another certificate, and a CA in the middle by the one that has signed it", async () => {
  const root = await certificateOf({ cn: "root" });
  const renewed = await certificateOf({ cn: "root", keyOf: root });
  const middle = await certificateOf({ cn: "middle", by: root });
  for (const other of [renewed, middle]) {
    const warning = sharedCaWarning(served("blue", side({ ca: root.cert }), side({ ca: other.cert })));
    assert.match(warning ?? "", /come from the same CA/);
  }
});

test("identities for both roles, or a CA for each, cause no warning", async () => {
  const { cert: other } = await Authority.create("other");
  assert.equal(sharedCaWarning(served("a", side({ identities: named }), side({ identities: named }))), undefined);
  assert.equal(sharedCaWarning(served("b", side(), side({ ca: other }))), undefined);
  assert.equal(sharedCaWarning(served("c", side(), { sni: [] })), undefined, "no callers over TLS");
});

test("a warning about many clusters names three and counts the others", () => {
  const ten = Array.from({ length: 10 }, (_, index) => served(`c${index}`, side(), side()));
  const warnings = warningsOf(ten, sharedCaWarning);
  assert.equal(warnings.length, 4);
  assert.equal(warnings[3], "the same is true of 7 more clusters");
});

test("in a fleet, claims that are not strict cause a warning, because they count at each server alone", () => {
  const claiming = { strategies: ["cidr", "default"] } as const;
  const warning = (agents: Partial<AgentSide>, more: Parameters<typeof runtimeOf>[1]) =>
    localClaimsWarning(served("blue", side(agents), side(), more));
  const inFleet = { directory: ["nats://10.0.0.1:4222"] };
  assert.match(
    warning(claiming, inFleet) ?? "",
    /^with --directory what agents of cluster "blue" \(blue\.yaml\) claim counts only .*: set agents\.strictIdentifiers/,
  );
  const ofFlags = { ...inFleet, isOfFlags: true, proxyStrategies: ["destHost" as const] };
  assert.match(
    warning({}, ofFlags) ?? "",
    /^with --directory what agents claim counts .*: set both .* in a document if/,
  );
  assert.equal(warning({ ...claiming, strictIdentifiers: true }, inFleet), undefined);
  const strictFlags = { ...ofFlags, strictIdentifiers: true };
  assert.match(warning({}, strictFlags) ?? "", /: write a document with agents\.claims, which hold at every server$/);
  assert.equal(warning({ strategies: ["defaultRoute"] }, inFleet), undefined);
  assert.equal(warning(claiming, {}), undefined, "without a directory there is one server to ask");
});
