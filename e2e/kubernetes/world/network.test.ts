import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { within } from "../../harness/wait.ts";
import { whatIsMissing } from "../prerequisites.ts";
import { CONTROL_PLANE, PORTS } from "./addresses.ts";
import { Namespace } from "./namespace.ts";
import { createNetwork } from "./network.ts";
import { run } from "./run.ts";

const missing = await whatIsMissing();
if (missing !== undefined && process.env["CI"] === "true") throw new Error(`CI may not skip this: ${missing}`);

/** Linux gives no process this number. */
const KILLED_RUN = "culvert-e2e-4194305-";

const leftBy = (prefix: string) =>
  ["/run/netns", "/etc/netns"]
    .flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : []))
    .filter((name) => name.startsWith(prefix));

test("namespaces, their files and their programs are gone with the run, and those of a killed run with the next", {
  skip: missing ?? false,
}, async () => {
  await run(["ip", "netns", "add", `${KILLED_RUN}control`], { env: { PATH: process.env["PATH"] ?? "" } });
  await using orphan = new Namespace(`${KILLED_RUN}control`).start("orphan", [
    "sh",
    "-c",
    "echo inside; exec sleep 1000",
  ]);
  await orphan.waitForLog("inside");
  mkdirSync(`/etc/netns/${KILLED_RUN}node`, { recursive: true });
  writeFileSync(`/run/netns/${KILLED_RUN}between`, ""); // killed between the name and the namespace
  const network = await createNetwork();
  assert.deepEqual(leftBy(KILLED_RUN), []);
  assert.equal(await within(orphan.exited, 5_000, "the orphan's end"), "SIGKILL");
  assert.ok(leftBy(network.controlPlane.name).length > 0);
  await network[Symbol.asyncDispose]();
  assert.deepEqual(leftBy(`culvert-e2e-${process.pid}-`), []);
});

const ECHO = `
  const server = require("net").createServer((socket) => socket.on("error", () => {}).pipe(socket));
  server.listen(${PORTS.agents}, () => console.log("listening"));`;
/** Sends all the time, and says what comes of it. */
const CLIENT = `
  const socket = require("net").connect(${PORTS.agents}, "${CONTROL_PLANE.ipv4}");
  socket.on("data", () => console.log("echo")).on("error", ({ code }) => console.log(code));
  setInterval(() => socket.write("x"), 20);`;

test("a gate that resets ends the agent's connection and refuses the next, and once closed lets it pass", {
  skip: missing ?? false,
}, async () => {
  await using network = await createNetwork();
  const node = (name: string, where: Namespace, script: string) => where.start(name, [process.execPath, "-e", script]);
  await using listener = node("listener", network.controlPlane, ECHO);
  await listener.waitForLog(/listening/);
  await using cut = node("client", network.node, CLIENT);
  await cut.waitForLog(/echo/);
  await network.reset();
  await cut.waitForLog(/ECONNRESET/);
  await using refused = node("client", network.node, CLIENT);
  await refused.waitForLog(/ECONNREFUSED/);
  await network.close();
  await using passed = node("client", network.node, CLIENT);
  await passed.waitForLog(/echo/);
});

test("a balancer's address leads the node to the server's port, and nowhere with the next gate", {
  skip: missing ?? false,
}, async () => {
  await using network = await createNetwork();
  const balancer = { address: "203.0.113.10", port: 443 };
  await using listener = network.controlPlane.start("listener", [process.execPath, "-e", ECHO]);
  await listener.waitForLog(/listening/);
  const connect = `
    require("net").connect(${balancer.port}, "${balancer.address}", () => process.exit(0)).on("error", () => {});
    setTimeout(process.exit, 1000, 1);`;
  const connects = async () => {
    const { code } = await network.node.run([process.execPath, "-e", connect]);
    return code === 0;
  };
  await network.close(PORTS.agents, balancer);
  assert.ok(await connects());
  await network.close();
  assert.ok(!(await connects()));
});
