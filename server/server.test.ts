import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { agentOf, fetchText, pki, start } from "./testing/server.ts";

test("readiness and status tell what an operator asks", async () => {
  await using server = await start({ readyNeedsAgent: true });
  const health = server.addresses.health?.port;
  const before = await fetchText(health, "/readyz?verbose");
  assert.equal(before.status, 503);
  assert.match(before.text, /\[-\]agents failed: 0 connected/);
  assert.match(before.text, /\[\+\]configuration ok: 1 warning, named at \/readyz\?verbose of the admin port$/m);
  assert.match(
    (await fetchText(server.addresses.admin?.port, "/readyz")).text,
    /\[\+\]configuration ok: warning: callers and agents come from the same CA: give --caller-identities and --agent-identities/,
  );
  await agentOf(server);
  await until(() => [...server.tunnels.tunnels()].length === 1);
  assert.equal((await fetchText(health, "/readyz")).status, 200);
  const status = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.equal(status.serverId, "srv-1");
  assert.equal(status.clusters[0].tunnels[0].agent, "a");
  assert.equal(status.clusters[0].tunnels[0].identity, "CN=konnectivity-agent");
  const warnings = server.lines.filter(({ level, msg }) => level === "warn" && /same CA/.test(msg));
  assert.equal(warnings.length, 1, "the shared CA is said once");
});

/** Of a net for documentation (RFC 5737). */
const NOBODYS = "192.0.2.1";

test("what cannot start says which option is wrong, and leaves nothing open", async () => {
  const [cert, ca] = [join(pki.folder, "none.pem"), join(pki.folder, "none-ca.pem")];
  await assert.rejects(
    start({ serverCert: cert, clusterCaCert: ca }),
    /^ConfigError: --cluster-ca-cert: .*none-ca\.pem.*no such file.*--server-cert: .*none\.pem.*no such file/s,
  );
  await assert.rejects(start({ agentIdentities: ["nonsense"] }), /--agent-identities: identity pattern "nonsense"/);
  await using first = await start();
  const taken = first.addresses.callers?.port ?? 0;
  await assert.rejects(start({ serverPort: taken }), /in use by another process.*--server-port/);
  for (const [flag, host] of [
    ["--server-bind-address", { serverBindAddress: NOBODYS }],
    ["--agent-bind-address", { agentBindAddress: NOBODYS }],
    [
      "--agent-insecure-bind-address",
      { agentInsecureBindAddress: NOBODYS, agentInsecureTrustedCidrs: ["127.0.0.0/8"], innerTls: "always" },
    ],
    ["--health-bind-address", { healthBindAddress: NOBODYS }],
    ["--admin-bind-address", { adminBindAddress: NOBODYS }],
  ] as const) {
    await assert.rejects(start(host), { message: new RegExp(`does not have the address.*\\(${flag}\\)`) });
  }
});
