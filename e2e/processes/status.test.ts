import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { before, describe, test } from "node:test";
import { createPki } from "../../cli/pki/pki.ts";
import { connectThrough } from "../harness/caller.ts";
import { agentFiles, flags, serverFiles } from "../harness/pki-files.ts";
import { MAIN, RUNTIME, requireBuilt, startCulvert } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";

interface Run {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function statusOf(...args: string[]): Promise<Run> {
  return new Promise((resolve) => {
    execFile(RUNTIME, [MAIN, "status", ...args], (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}

const DOCUMENTS = `
name: blue
agents: {sni: [blue.test], identities: [CN=culvert-agent]}
callers: {uds: blue.sock}
limits: {connectsPerSecond: 1}
---
name: red
agents: {sni: [red.test], identities: [CN=nobody]}
callers: {uds: red.sock}
suspended: true
`;

before(requireBuilt);

describe("culvert status", () => {
  test("clusters, agents, limits that were hit and who was refused are shown, or all of it as JSON", async () => {
    await using echo = await TARGETS.echo();
    using dir = new TempDir();
    await createPki({ dir: dir.path, clusterNames: ["blue.test"] });
    mkdirSync(dir.file("clusters"));
    writeFileSync(dir.file("clusters/both.yaml"), DOCUMENTS);
    const [agentPort, healthPort, adminPort] = await Promise.all([freePort(), freePort(), freePort()]);
    const { clusterCert, clusterKey, clusterCaCert } = serverFiles(dir.path);
    const host = "127.0.0.1";
    await using server = startCulvert([
      "server",
      ...flags({
        ...{ clusters: dir.file("clusters"), serverId: "srv-1", clusterCert, clusterKey, clusterCaCert },
        ...{ serverPort: 0, agentPort, agentBindAddress: host, healthPort, healthBindAddress: host, adminPort },
      }),
    ]);
    await server.waitForHealth(`http://${host}:${healthPort}/readyz`);
    await using agent = startCulvert([
      "agent",
      ...flags({
        ...{ server: `wss://blue.test:${agentPort}`, serverAddress: host, agentId: "node-1" },
        ...{ healthServerPort: 0, adminServerPort: 0, allowLoopback: true, ...agentFiles(dir.path) },
      }),
    ]);
    await server.waitForLog("tunnel opened");

    const statuses: number[] = [];
    for (let attempt = 0; attempt < 20 && !statuses.includes(429); attempt++) {
      await using connection = await connectThrough({ path: dir.file("clusters/blue.sock") }, echo.address);
      statuses.push(connection.status);
    }
    assert.equal(statuses[0], 200);
    assert.equal(statuses.at(-1), 429);

    const address = `--admin-address=${host}:${adminPort}`;
    const table = await statusOf(address);
    assert.equal(table.stderr, "");
    assert.equal(table.code, 0);
    assert.match(table.stdout, /^server srv-1: /);
    assert.match(table.stdout, /^blue +open +1 +0 +\d+ +\d+ +1 .* connectsPerSecond=1 refused once$/m);
    assert.match(table.stdout, /^red +suspended +0 +0 +0 .* -$/m);
    assert.match(
      table.stdout,
      /^blue +node-1 +up +CN=culvert-agent +127\.0\.0\.1:\d+ +\d+s +[\d.]+ ms +(?:-|.* \w+\/s.*?) +\d+$/m,
    );
    assert.match(
      table.stdout,
      /^blue +\d+s +1 +caller unix to \S+ +limited +cluster "blue" is at its limit: 1 CONNECTs a second/m,
    );

    const { code, stdout } = await statusOf(address, "--json");
    assert.equal(code, 0);
    const [blue] = JSON.parse(stdout).clusters;
    assert.equal(blue.connects.outcomes.limited, 1);
    assert.deepEqual(blue.limits, { set: { connectsPerSecond: 1 }, hit: { connectsPerSecond: 1 } });
    assert.equal(blue.tunnels[0].instance.length > 0, true);

    const health = await statusOf(`--admin-address=${host}:${healthPort}`);
    assert.deepEqual([health.code, health.stdout], [1, ""]);
    assert.match(health.stderr, /^culvert status: 127\.0\.0\.1:\d+ answers, but not as an --admin-port of culvert/);
    await agent.stop();
    await server.stop();
    const gone = await statusOf(address);
    assert.deepEqual([gone.code, gone.stdout], [1, ""]);
    assert.match(gone.stderr, /^culvert status: 127\.0\.0\.1:\d+ refuses the connection: .*\n$/);
  });

  test("an address that is none is a wrong command line", async () => {
    const { code, stderr } = await statusOf("--admin-address=http://127.0.0.1:8095/");
    assert.equal(code, 2);
    assert.match(stderr, /^culvert: --admin-address needs the host and port .*, not "http:/);
  });
});
