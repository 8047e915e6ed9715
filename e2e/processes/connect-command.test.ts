import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { before, test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { MAIN, RUNTIME, requireBuilt } from "../harness/processes.ts";
import { echoTarget, resettingTarget } from "../harness/targets/plain.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";

before(requireBuilt);

const BYTES = 4_000_000;

async function textOf(stream: Readable | null): Promise<string> {
  let text = "";
  for await (const chunk of stream ?? []) text += String(chunk);
  return text;
}

class ConnectCommand implements Disposable {
  readonly child: ChildProcess;
  readonly stdout: Promise<string>;
  readonly stderr: Promise<string>;
  readonly exited: Promise<unknown[]>;

  constructor(...args: string[]) {
    this.child = spawn(RUNTIME, [MAIN, "connect", ...args], { stdio: ["pipe", "pipe", "pipe"] });
    this.child.stdin?.on("error", () => {}); // it may end first
    this.exited = once(this.child, "exit");
    this.stdout = textOf(this.child.stdout);
    this.stderr = textOf(this.child.stderr);
  }

  async result() {
    const [[code], stdout, stderr] = await Promise.all([this.exited, this.stdout, this.stderr]);
    return { code, stdout, stderr };
  }

  [Symbol.dispose](): void {
    this.child.kill("SIGKILL");
  }
}

const certificatesOf = ({ dir }: Site) => [
  ...["--ca-cert", dir.file("server-ca.crt")],
  ...["--cert", dir.file("client.crt"), "--key", dir.file("client.key")],
];

for (const via of ["a unix socket", "mutual TLS"] as const) {
  test(`connect joins stdin and stdout with the target over ${via}, each direction until it ends`, async () => {
    using site = await createSite();
    await using _server = await site.startServer();
    await using _agent = await site.startAgent();
    // Answers only after the end of what it was sent.
    await using target = await tcpTarget((socket) => {
      const hash = createHash("sha256");
      socket.on("data", (chunk) => hash.update(chunk)).once("end", () => socket.end(hash.digest("hex")));
    });
    const tls = ["--server", `127.0.0.1:${site.callerPort}`, ...certificatesOf(site)];
    const way = via === "mutual TLS" ? tls : ["--uds-name", site.uds];
    using command = new ConnectCommand(target.address, ...way);
    const payload = Buffer.alloc(BYTES, "culvert");
    command.child.stdin?.end(payload);
    const { code, stdout, stderr } = await command.result();
    assert.equal(stdout, createHash("sha256").update(payload).digest("hex"));
    assert.equal(code, 0);
    const steps = via === "mutual TLS" ? ["tcp", "tls", "connect"] : ["unix socket", "connect"];
    const shown = [...stderr.matchAll(/^✓ (\w+(?: \w+)?) +\d+ ms {2}/gm)].map(([, step]) => step);
    assert.deepEqual(shown, steps);
  });
}

test("connect ends when the target does, although stdin goes on, and has passed all that it sent", async () => {
  using site = await createSite();
  await using _server = await site.startServer();
  await using _agent = await site.startAgent();
  await using target = await tcpTarget((socket) => socket.end("x".repeat(BYTES)));
  using command = new ConnectCommand(target.address, "--uds-name", site.uds, "--quiet");
  assert.deepEqual(await command.result(), { code: 0, stdout: "x".repeat(BYTES), stderr: "" });
});

test("connect says which step has failed and what to do, and its exit code is 1", async () => {
  using site = await createSite();
  await using server = await site.startServer();
  const uds = ["--uds-name", site.uds];
  const tls = ["--server", `127.0.0.1:${site.callerPort}`];
  const [noAgent, noCa, quiet] = await Promise.all(
    [uds, tls, [...uds, "--quiet"]].map((way) => new ConnectCommand("localhost:1", ...way).result()),
  );
  assert.equal(noAgent?.code, 1);
  assert.match(noAgent.stderr, /^✗ connect +\d+ ms {2}503 \w+: .*no agent.*\n\nNext: Run culvert explain \w+/m);
  assert.equal(noCa?.code, 1);
  assert.match(noCa.stderr, /^✗ tls .*\n\nNext: Check --ca-cert/m);
  assert.match(quiet?.stderr ?? "", /^culvert connect: 503 \w+: .*no agent.*\n$/);
  const health = await new ConnectCommand("localhost:1", "--server", `127.0.0.1:${site.healthPort}`).result();
  assert.match(health.stderr, /^✗ tls .*speaks no TLS\n\nNext: Check --server/m);
  await server.stop();
  const away = await new ConnectCommand("localhost:1", ...tls).result();
  assert.equal(away.code, 1);
  assert.match(away.stderr, /^✗ tcp .*refused the connection/m);
});

test("connect says that a connection was lost, and its exit code is 1", async () => {
  using site = await createSite();
  await using _server = await site.startServer();
  await using _agent = await site.startAgent();
  await using target = await resettingTarget(1);
  const tls = ["--server", `127.0.0.1:${site.callerPort}`, ...certificatesOf(site)]; // a unix socket knows no reset
  using command = new ConnectCommand(target.address, ...tls, "--quiet");
  command.child.stdin?.write("x");
  const { code, stderr } = await command.result();
  assert.deepEqual(
    { code, lost: stderr.startsWith("culvert connect: the connection was lost: ") },
    { code: 1, lost: true },
  );
});

test("connect leaves an idle connection open", async () => {
  using site = await createSite();
  await using _server = await site.startServer();
  await using _agent = await site.startAgent();
  await using target = await echoTarget();
  using command = new ConnectCommand(target.address, "--uds-name", site.uds, "--quiet", "--connect-timeout", "1s");
  await new Promise((resolve) => setTimeout(resolve, 1_500)); // longer than the time in which it had to connect
  command.child.stdin?.end("still here");
  assert.deepEqual(await command.result(), { code: 0, stdout: "still here", stderr: "" });
});
