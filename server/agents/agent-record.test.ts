import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditedFacts } from "../audit/audit-trail.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { recordRefusal } from "./agent-record.ts";

test("the audit trail names no cluster where an agent came to none", () => {
  const audited: AuditedFacts[] = [];
  const audit = () => ({ refused: (facts: AuditedFacts) => audited.push(facts) });
  const context = { metrics: { agentRefused: () => {} }, audit } as unknown as ServerContext;
  const refused = { remote: "10.0.0.1:1", by: {}, code: 401, rule: "unauthenticated", reason: "no token" };
  for (const cluster of ["", "blue"]) recordRefusal({ ...refused, cluster }, context);
  assert.deepEqual(
    audited.map(({ cluster }) => cluster),
    [undefined, "blue"],
  );
});
