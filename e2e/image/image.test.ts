import assert from "node:assert/strict";
import { once } from "node:events";
import { chownSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import * as nodeModule from "node:module";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { validate } from "dockerfile-utils";
import { createPki } from "../../cli/pki/pki.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { agentFiles, flags, serverFiles } from "../harness/pki-files.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";
import { missing } from "../proxies/harness/missing.ts";
import { buildImage, type Image } from "./harness/build.ts";
import { BuildContext } from "./harness/build-context.ts";
import { Container } from "./harness/container.ts";
import { packageRegistry } from "./harness/package-registry.ts";

const DOCKERFILE = readFileSync(join(ROOT, "Dockerfile"), "utf8");
const MANIFEST = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const BUILD = ["scripts/build.mjs", "scripts/revision.mjs"];
const NOBODY = 65_532;
const REVISION = "0123456789abcdef0123456789abcdef01234567";
/** Where installers of Konnectivity mount certificates, and where its socket is. */
const CERTIFICATES = "/etc/kubernetes/pki";
const SOCKETS = "/etc/kubernetes/konnectivity-server";

test("a linter has no objection to the Dockerfile", () => {
  assert.deepEqual(validate(DOCKERFILE), []);
});

test("the builder gets sources and pages, and no key, test, foreign build or history", () => {
  const context = new BuildContext(ROOT);
  const sent = [
    "package-lock.json",
    ".npmrc",
    "cli/main.ts",
    "shared/relay/splice.ts",
    "docs/errors.md",
    "docker/culvert",
  ];
  const kept = [
    "pki/server.key",
    ".git/config",
    ".env",
    "dist/cli/main.js",
    "node_modules/ws/package.json",
    "scripts/x",
  ];
  const tests = [
    "shared/relay/splice.test.ts",
    "server/testing/server.ts",
    "shared/link/testing/frames.ts",
    "e2e/harness/wait.ts",
  ];
  const isSent = (path: string) => context.isSent(path);
  assert.deepEqual([...sent, ...BUILD].filter(isSent), [...sent, ...BUILD]);
  assert.deepEqual([...kept, ...tests].filter(isSent), []);
});

describe("the image, built step by step with this machine in place of its base", { skip: missing("setpriv") }, () => {
  const dir = new TempDir();
  let image: Image;

  before(async () => {
    new BuildContext(ROOT).send(dir.file("context"));
    image = await buildImage({
      dockerfile: DOCKERFILE,
      context: dir.file("context"),
      stages: dir.file("stages"),
      buildArgs: { REVISION },
      ...packageRegistry(),
    });
  });
  after(() => dir[Symbol.dispose]());

  /** Runs it to its end. */
  async function run(args?: readonly string[], command?: readonly string[]): Promise<[end: string, output: string]> {
    await using container = await Container.start(image, { ...(args && { args }), ...(command && { command }) });
    return [await container.end(), container.output];
  }

  /** Certificates as a pod gets them by its fsGroup, and an empty folder for a socket. */
  async function volumes() {
    const sockets = join(dir.path, `v${await freePort()}`);
    const certificates = join(sockets, "pki");
    await createPki({ dir: certificates });
    const files = readdirSync(certificates).map((name) => join(certificates, name));
    for (const path of [sockets, certificates, ...files]) chownSync(path, NOBODY, NOBODY);
    return {
      sockets,
      mounts: [
        { from: certificates, at: CERTIFICATES, readOnly: true },
        { from: sockets, at: SOCKETS },
      ],
    };
  }

  test("its base is a minor version of Node.js 24, its labels are this version's, and its user is a number", () => {
    assert.match(image.base, /^node:24\.\d+-slim$/);
    assert.equal(image.labels["org.opencontainers.image.version"], MANIFEST.version);
    assert.equal(image.labels["org.opencontainers.image.licenses"], MANIFEST.license);
    assert.ok(MANIFEST.description.startsWith(image.labels["org.opencontainers.image.description"]));
    assert.equal(image.labels["org.opencontainers.image.revision"], REVISION);
    assert.equal(image.user, `${NOBODY}:${NOBODY}`);
  });

  test("it has what the package has, and the packages that package-lock.json has for run time", () => {
    // npm adds the three that package.json need not name. A pattern with `!` names what is left out.
    const files = MANIFEST.files.filter((pattern: string) => !pattern.startsWith("!"));
    const packed = [...files, "README.md", "LICENSE", "package.json"];
    assert.deepEqual(
      readdirSync(image.root.at("app")).toSorted(),
      [...packed, "cache", "node_modules", "package-lock.json"].toSorted(),
    );
    const read = (path: string) => JSON.parse(readFileSync(image.root.at(path), "utf8")).packages as Packages;
    const locked = Object.entries(read("app/package-lock.json")).filter(([path, { dev }]) => path !== "" && !dev);
    const installed = Object.keys(read("app/node_modules/.package-lock.json"));
    assert.deepEqual(installed.toSorted(), locked.map(([path]) => path).toSorted());
    assert.ok(!existsSync(image.root.at("app/docs/images")), "pictures are for people who read the repository");
    const built = readdirSync(image.root.at("app/dist"), { recursive: true, encoding: "utf8" });
    assert.deepEqual(
      built.filter((path) => /\.test\.js$|(^|\/)testing/.test(path)),
      [],
    );
  });

  test("everybody can read its files and only root can write them, although the clone was private to its user", () => {
    const wrong: string[] = [];
    const programs = ["proxy-server", "proxy-agent", "usr/bin/proxy-server", "usr/bin/control-plane-operator"];
    for (const path of [...programs, "usr/local/bin/culvert", "app"]) walk(image.root.at(path));
    assert.deepEqual(wrong, []);

    function walk(path: string): void {
      const status = lstatSync(path);
      if (status.isSymbolicLink()) return;
      const needed = status.isDirectory() ? 0o555 : 0o444;
      if (status.uid !== 0 || (status.mode & needed) !== needed || (status.mode & 0o022) !== 0) wrong.push(path);
      if (status.isDirectory()) for (const name of readdirSync(path)) walk(join(path, name));
    }
  });

  test("its entry point is culvert, which shows help, version, revision and the page of a code", async () => {
    const [end, output] = await run();
    assert.deepEqual([end, output.split("\n")[0]], ["exit code 0", "Usage: culvert [options] [command]"]);
    const version = await run(["version"]);
    assert.match(version.join("\n"), new RegExp(`^exit code 0\nculvert ${MANIFEST.version}\nrevision ${REVISION}\n`));
    assert.match((await run(["explain", "dial_timeout"])).join("\n"), /^exit code 0\n### dial_timeout\n/);
    assert.deepEqual((await run(["sever"]))[0], "exit code 2");
  });

  // V8 refuses code that was kept under other flags: that of a few small files, which several processes load.
  test("a start uses V8's code that the build has left, for most files, where Node.js keeps it", async () => {
    const command = ["env", "NODE_DEBUG_NATIVE=COMPILE_CACHE", "culvert", "server", "--help"];
    const [, output] = await run([], command);
    const [accepted, rejected] = ["accepted", "rejected"].map((word) => output.split(`was ${word}`).length - 1);
    const isKept = "enableCompileCache" in nodeModule; // from Node.js 22.1
    assert.equal(readdirSync(image.root.at("app/cache")).length, isKept ? 1 : 0);
    assert.ok(isKept ? (accepted ?? 0) > 3 && (accepted ?? 0) > (rejected ?? 0) : accepted === 0, output);
  });

  test("proxy-server and proxy-agent, in / and in /usr/bin, are culvert server and agent", async () => {
    const help = (command: string[], ...args: string[]) =>
      run([...args, "--help"], command).then(([, output]) => output);
    const [server, agent] = await Promise.all([help(["/proxy-server"]), help(["/proxy-agent"])]);
    assert.equal(server, await help(["culvert"], "server"));
    assert.equal(agent, await help(["culvert"], "agent"));
    assert.notEqual(server, agent);
    // This machine's /usr/bin is mounted over the image's while a command runs.
    for (const name of ["proxy-server", "proxy-agent"]) {
      assert.deepEqual(readFileSync(image.root.at(`usr/bin/${name}`)), readFileSync(image.root.at(name)));
    }
  });

  test("with Konnectivity's commands it carries a CONNECT on a read-only root; SIGTERM ends both with 0", async () => {
    await using echo = await TARGETS.echo();
    const { sockets, mounts } = await volumes();
    writeFileSync(join(sockets, "proxy.pac"), 'function FindProxyForURL() { return "DIRECT"; }');
    const [agentPort, healthPort] = [await freePort(), await freePort()];
    const { clusterCert, clusterKey, clusterCaCert } = serverFiles(CERTIFICATES);
    await using server = await Container.start(image, {
      command: ["/proxy-server"],
      args: [
        ...["--logtostderr=true", "--mode=http-connect", "--server-port=0", `--uds-name=${SOCKETS}/k.socket`],
        ...["--delete-existing-uds-file", `--agent-port=${agentPort}`, `--health-port=${healthPort}`, "--admin-port=0"],
        ...flags({ clusterCert, clusterKey, clusterCaCert }),
      ],
      volumes: mounts,
    });
    await server.waitForHealth(healthPort);
    await using agent = await Container.start(image, {
      command: ["/proxy-agent"],
      args: [
        ...["--logtostderr=true", "--proxy-server-host=127.0.0.1", `--proxy-server-port=${agentPort}`],
        ...["--health-server-port=0", "--admin-server-port=0", "--allow-loopback", `--pac=${SOCKETS}/proxy.pac`],
        ...flags(agentFiles(CERTIFICATES)),
      ],
      volumes: mounts,
    });
    await agent.waitForLog(/"uplink connected"/);
    for (const container of [server, agent]) {
      assert.deepEqual(container.status("NSpid").at(-1), "1", "process 1 of its container");
      assert.equal(container.commandLine()[0], "node");
      assert.deepEqual([...new Set([...container.status("Uid"), ...container.status("Gid")])], [String(NOBODY)]);
      assert.deepEqual(container.status("CapEff"), ["0000000000000000"]);
    }
    assert.deepEqual(agent.children(), [], "a PAC script is evaluated in the agent's own process");
    await using connection = await established(connectThrough({ path: join(sockets, "k.socket") }, echo.address));
    await connection.send("hello");
    assert.equal((await connection.readBytes(5)).toString(), "hello");
    connection.socket.destroy();
    for (const container of [agent, server]) {
      container.signal("SIGTERM");
      assert.equal(await container.end(), "exit code 0");
    }
  });

  test("a container whose test has been killed is gone, too", async () => {
    await using container = await Container.start(image, { command: ["sleep", "1000"] });
    await waitFor(() => container.commandLine()[0] === "sleep", { what: "sleep to run" });
    await container.abandon();
    await waitFor(() => container.commandLine().length === 0, { what: "process 1 to end" });
  });

  test("SIGINT, as from a terminal, ends culvert server with 0", async () => {
    const { mounts } = await volumes();
    const healthPort = await freePort();
    const ports = { serverPort: await freePort(), agentPort: await freePort(), healthPort, adminPort: 0 };
    await using server = await Container.start(image, {
      args: ["server", ...flags({ ...ports, ...serverFiles(CERTIFICATES) })],
      volumes: mounts,
    });
    await server.waitForHealth(healthPort);
    server.signal("SIGINT");
    assert.equal(await server.end(), "exit code 0");
  });

  for (const [signal, code] of [
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const) {
    test(`a command that listens to no signal ends at ${signal}, although it is process 1`, async (t) => {
      const silent = createServer().listen(0, "127.0.0.1");
      await once(silent, "listening");
      const asked = once(silent, "connection") as Promise<[Socket]>;
      const folder = join(dir.path, signal);
      mkdirSync(folder);
      writeFileSync(join(folder, "kubeconfig"), kubeconfigFor((silent.address() as AddressInfo).port));
      await using container = await Container.start(image, {
        args: ["pki", "kubernetes", "--namespace=a", "--name=b", "--server-names=c", "--kubeconfig=/run/k/kubeconfig"],
        volumes: [{ from: folder, at: "/run/k" }],
      });
      const [connection] = await asked;
      t.after(() => {
        connection.destroy();
        silent.close();
      });
      container.signal(signal);
      assert.equal(await container.end(3_000), `exit code ${code}`);
    });
  }
});

type Packages = Readonly<Record<string, { readonly dev?: boolean }>>;

function kubeconfigFor(port: number): string {
  return JSON.stringify({
    "current-context": "x",
    contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
    clusters: [{ name: "x", cluster: { server: `https://127.0.0.1:${port}` } }],
    users: [{ name: "x", user: { token: "x" } }],
  });
}
