import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { fetchText } from "../../server/testing/server.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { connectThrough } from "../harness/caller.ts";
import { examined } from "../harness/doctor.ts";
import { freePort } from "../harness/targets/absent.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

/**
 * A world whose CA files hold an issuing CA alone, as kubeadm with an external CA hands it out. A caller trusts the
 * root, which is in no file.
 */
async function issuedWorld() {
  const root = await certificateOf({ cn: "root" });
  const world = await startWorld({ agents: 0, targets: ["echo"] });
  const write = (name: string, content: string): void => writeFileSync(world.dir.file(name), content);
  const issuing = await certificateOf({ cn: "issuing", by: root });
  const authority = await Authority.load(issuing);
  const names = ["127.0.0.1", "localhost"];
  const [server, cluster] = [
    await authority.issue({ cn: "server", names, usage: "server" }),
    await authority.issue({ cn: "cluster", names, usage: "server" }),
  ];
  const [caller, agent] = [
    await authority.issue({ cn: "kube-apiserver", usage: "client" }),
    await authority.issue({ cn: "agent", usage: "client" }),
  ];
  const files = { "server-ca.crt": issuing.cert, "cluster-ca.crt": issuing.cert };
  for (const [name, content] of Object.entries(files)) write(name, content);
  for (const [name, { cert, key }] of Object.entries({ cluster, agent })) {
    write(`${name}.crt`, cert);
    write(`${name}.key`, key);
  }
  write("server.crt", server.cert + issuing.cert);
  write("server.key", server.key);
  world.server.destroy(new Error("it starts again with other certificates"));
  await world.startServer({ innerTls: "auto" });
  const port = world.server.addresses.callers?.port ?? 0;
  const connect = () =>
    connectThrough({ host: "127.0.0.1", port, tls: { ca: root.cert, ...caller } }, world.targets.echo.address);
  return { world, write, issuing, agent, connect };
}

test("a server, its agents, its callers and the doctor take an issuing CA without its root, with inner TLS too", async () => {
  const { world, connect } = await issuedWorld();
  await using _world = world;
  for (const innerTls of ["never", "always"] as const) {
    const agent = await world.startAgent({ innerTls });
    await using connection = await connect();
    assert.equal(connection.status, 200);
    const { verdict, text } = await examined(world, { innerTls });
    assert.equal(verdict.culprit, "none", text);
    agent.destroy(new Error("the next one comes"));
  }
});

test("a leaf in place of a CA is named where it comes by a reload, is never trusted, and stops no agent", async () => {
  const { world, write, issuing, agent } = await issuedWorld();
  await using _world = world;
  const known = await world.startAgent({ adminServerPort: await freePort() });
  const ports = [world.server.addresses.admin, known.addresses.admin];
  const readyz = (port: number | undefined) => fetchText(port, "/readyz?verbose").then(({ text }) => text);
  write("cluster-ca.crt", agent.cert);
  for (const at of ports) {
    await waitFor(async () => /cluster-ca\.crt holds no CA: "CN=agent" is a leaf/.test(await readyz(at?.port)));
  }
  await world.startAgent({ caCert: world.dir.file("server-ca.crt") });
  write("cluster-ca.crt", agent.cert + issuing.cert);
  for (const [at, by] of ports.map((at, index) => [at, ["--cluster-ca-cert", "--ca-cert"][index]] as const)) {
    const named = `"CN=agent" in the file of ${by} is a leaf, and no CA: nothing is verified by it`;
    await waitFor(async () => (await readyz(at?.port)).includes(named));
  }
  const { text } = await examined(world);
  assert.match(text, /server CA .*issuing \("CN=agent" in the same file is a leaf, and is not trusted\)/);
});
