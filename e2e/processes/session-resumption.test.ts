import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import { selfSigned } from "../harness/certificate.ts";
import { type ClusterFiles, ClusterFolder } from "../harness/cluster-files.ts";
import { type ClusterServerProcess, startClusterProcess } from "../harness/cluster-processes.ts";
import { ON_BUN } from "../harness/processes.ts";
import { listenOnLoopback, TcpTarget } from "../harness/targets/tcp.ts";
import { within } from "../harness/wait.ts";

const VERSIONS = ["tls1_2", "tls1_3"] as const;
const SKIP = { skip: spawnSync("openssl", ["version"]).status !== 0 && "there is no openssl" };

let folder: ClusterFolder;
let clusters: ClusterServerProcess;

before(async () => {
  folder = await ClusterFolder.create(["blue", "red"]);
  clusters = await startClusterProcess(folder, { helloTimeout: "500ms" });
});

after(async () => {
  await clusters?.server.stop();
  folder?.[Symbol.dispose]();
});

/** The first bytes of an admitted client, and the answer to a client that is not admitted. */
const PORTS = {
  callers: { says: "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: x\r\n\r\n", refused: /^HTTP\/1\.1 407 / },
  agents: {
    says: [
      "GET /culvert/v1/tunnel HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
      "Sec-WebSocket-Protocol: culvert.v1\r\n\r\n",
    ].join(""),
    refused: /^HTTP\/1\.1 401 /,
  },
} as const;

for (const version of VERSIONS) {
  test(`the control: a server that does resume is seen to, by ${version}`, SKIP, async () => {
    await using resuming = await resumingServer();
    const at = { port: resuming.port, version, says: "hello\r\n" };
    const session = folder.dir.file(`control-${version}`);
    assert.equal((await openssl({ ...at, name: "blue.example", out: session })).handshake, "New");
    assert.equal((await openssl({ ...at, name: "blue.example", resume: session })).handshake, "Reused");
  });

  for (const [name, { says, refused }] of Object.entries(PORTS)) {
    test(
      `no session of ${version} on the ${name}' port is gone on with, at its own name or at another's`,
      SKIP,
      async () => {
        const [blue, red] = [folder.get("blue"), folder.get("red")];
        const port = name === "callers" ? clusters.callerPort : clusters.agentPort;
        const at = { port, version, says };
        const session = folder.dir.file(`${name}-${version}`);
        rmSync(session, { force: true });
        const first = await openssl({ ...at, name: blue.sni, out: session, ...(await clientFiles(blue, name)) });
        assert.equal(first.handshake, "New");
        assert.doesNotMatch(first.answer, refused, "the session that is taken along is one that was let in");
        // Both versions name their sessions, TLS 1.3 in a ticket that is only a name: what counts is that nobody knows
        // it again.
        // BoringSSL sends none where tickets are off.
        if (ON_BUN && version === "tls1_3") {
          assert.equal(existsSync(session), false);
          return;
        }
        assert.ok(existsSync(session), "there is a session to try with");
        const again = await openssl({ ...at, name: blue.sni, resume: session });
        assert.equal(again.handshake, "New");
        assert.match(again.answer, refused, "without its certificate it is nobody");
        const elsewhere = await openssl({ ...at, name: red.sni, resume: session });
        assert.equal(elsewhere.handshake, "New");
        assert.match(elsewhere.answer, refused);
      },
    );
  }
}

test("a session of another server, too, is no way in: TLS 1.3", SKIP, async () => {
  await using resuming = await resumingServer();
  const session = folder.dir.file("foreign");
  await openssl({ port: resuming.port, version: "tls1_3", says: "hello\r\n", name: "blue.example", out: session });
  for (const [name, { says, refused }] of Object.entries(PORTS)) {
    const port = name === "callers" ? clusters.callerPort : clusters.agentPort;
    const { handshake, answer } = await openssl({
      port,
      version: "tls1_3",
      says,
      name: "blue.example",
      resume: session,
    });
    assert.equal(handshake, "New");
    assert.match(answer, refused);
  }
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** TLS as Node does it by itself: with tickets. */
async function resumingServer(): Promise<TcpTarget> {
  const server = createTlsServer(await selfSigned(), (socket) => {
    socket.on("error", () => {});
    socket.once("data", () => socket.end("welcome\r\n"));
  });
  const target = new TcpTarget(server);
  server.on("connection", (socket) => target.track(socket));
  await listenOnLoopback(server);
  return target;
}

async function clientFiles(cluster: ClusterFiles, port: string): Promise<{ certificate: string }> {
  const { cert, key } = port === "callers" ? await cluster.callerPair : await cluster.agentPair;
  const certificate = folder.dir.file(`${cluster.name}-${port}.client`);
  await writeFile(certificate, cert + key);
  return { certificate };
}

interface Client {
  readonly port: number;
  readonly version: (typeof VERSIONS)[number];
  /** SNI. */
  readonly name: string;
  readonly says: string;
  readonly certificate?: string;
  /** Where its session goes, and of which file it wants to go on. */
  readonly out?: string;
  readonly resume?: string;
}

/** One `openssl s_client`: how its handshake went, and the lines that it was answered with. */
async function openssl({ port, version, name, says, certificate, out, resume }: Client) {
  const args = ["s_client", `-${version}`, "-connect", `127.0.0.1:${port}`, "-servername", name, "-ign_eof"];
  if (certificate !== undefined) args.push("-cert", certificate, "-key", certificate);
  if (out !== undefined) args.push("-sess_out", out);
  if (resume !== undefined) args.push("-sess_in", resume);
  const client = spawn("openssl", args, { stdio: ["pipe", "pipe", "pipe"] });
  client.stdin.on("error", () => {}); // it may be gone before it has heard all
  let said = "";
  for (const stream of [client.stdout, client.stderr]) stream.on("data", (chunk) => (said += chunk));
  const exited = new Promise((resolve) => client.once("close", resolve));
  client.stdin.write(says);
  try {
    await within(exited, 20_000, `openssl at ${name} to end`);
  } catch (error) {
    client.kill("SIGKILL");
    throw new Error(`${(error as Error).message}\n${said}`);
  }
  const handshake = /^(New|Reused), /m.exec(said)?.[1];
  return { handshake, answer: /^HTTP\/1\.1 .*/m.exec(said)?.[0] ?? said };
}
