import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ISSUER, Issuer, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { type CallerListener, connectThrough } from "../harness/caller.ts";
import { startClusterAgent } from "../harness/cluster-agents.ts";
import { ClusterFolder } from "../harness/cluster-files.ts";
import { startClusterServer } from "../harness/cluster-server.ts";
import { listedFiles, productCalls } from "../harness/product-calls.ts";
import { TARGETS } from "../harness/targets.ts";
import { startWorld } from "../harness/world.ts";

const ROUNDS = 40;
const DENIED = "10.0.0.1:10250";

/** Files that every step may use, and files that join the steps: a reader who follows a CONNECT need not open them. */
const ASIDE = [
  ...["shared/basics/", "shared/limits/", "shared/node/", "shared/runtime/", "server/metrics/"],
  "server/callers/connect-trace.ts",
  ...["shared/address/network.ts", "shared/address/agent-identifiers.ts", "shared/address/server-name.ts"],
  ...["shared/http/connection.ts", "shared/documents/watched-files.ts", "shared/tls/certificate-fields.ts"],
  ...["shared/listen/incoming-connection.ts", "shared/relay/reset.ts", "shared/yamux/bounds.ts"],
  ...["server/server.ts", "server/cluster-updates.ts", "server/clusters/store.ts", "server/clusters/routing-rules.ts"],
  // The verifiers behind verifier.ts.
  ...["server/tokens/jwt-verifier.ts", "server/tokens/verification-cache.ts", "agent/context/metrics.ts"],
];

/** The product files in which a function runs at each of these CONNECTs. */
async function filesOf(connect: () => Promise<void>): Promise<string[]> {
  await connect();
  const calls = await productCalls(async () => {
    for (let round = 0; round < ROUNDS + 2; round++) await connect(); // the last ones may end when nobody counts
  });
  return [...calls].filter(([, count]) => count >= ROUNDS).map(([file]) => file);
}

/** One server and one agent of flags, where a caller comes with its certificate. */
async function filesOfUsual(): Promise<string[]> {
  await using world = await startWorld({ targets: ["echo"] });
  return await filesOf(async () => {
    await using connection = await world.connect("echo", { via: "tls" });
    assert.equal(connection.status, 200);
  });
}

/** Two clusters: names in the ClientHello, a token, agents by their identifiers, a unix socket, a refusal. */
async function filesOfOthers(): Promise<string[]> {
  using folder = await ClusterFolder.create(["blue", "red"]);
  const blue = folder.get("blue");
  const issuer = await Issuer.create();
  await writeFile(join(folder.path, "blue.jwks"), JSON.stringify(await issuer.keySet()));
  const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks", subjects: [SUBJECT] };
  const strategies = ["destHost", "default"];
  await blue.write({ callers: { token: { jwt } }, agents: { strategies }, deny: [DENIED] });
  using server = await startClusterServer(folder);
  const agent = await startClusterAgent(blue, server.agentPort, {});
  await using echo = await TARGETS.echo();
  const ask = async (listener: CallerListener, target: string, status: number, header = ""): Promise<void> => {
    const request = `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n${header}\r\n`;
    await using connection = await connectThrough(listener, target, { request });
    assert.equal(connection.status, status);
  };
  const tls = { host: "127.0.0.1", port: server.callerPort, tls: { ca: blue.ca, servername: blue.sni } };
  const header = `Proxy-Authorization: Bearer ${await issuer.token()}\r\n`;
  try {
    return [
      ...(await filesOf(() => ask(tls, echo.address, 200, header))),
      ...(await filesOf(() => ask({ path: blue.uds }, DENIED, 403))),
    ];
  } finally {
    agent.destroy(new Error("the test is over"));
  }
}

test("a CONNECT passes the files that docs/architecture.md lists, and no others", async () => {
  const [usual, others] = [await filesOfUsual(), await filesOfOthers()];
  const second = listedFiles("The life of a CONNECT", 1);
  const third = listedFiles("The life of a CONNECT", 2);
  assert.ok(second.length > 0 && third.length > 0, "the page has the table");
  const missing = (files: readonly string[], among: readonly string[]) => files.filter((file) => !among.includes(file));
  assert.deepEqual(missing(second, usual), [], "nothing of these files of the second column ran");
  assert.deepEqual(missing(third, [...usual, ...others]), [], "nothing of these files of the third column ran");
  const listed = [...second, ...third, ...listedFiles("The path of a byte", 1)];
  const unlisted = missing([...usual, ...others], listed).filter(
    (file) => !ASIDE.some((path) => file.startsWith(path)),
  );
  assert.deepEqual(unlisted, [], "these files are not listed");
});
