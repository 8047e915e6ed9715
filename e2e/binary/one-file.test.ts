import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { createPki } from "../../cli/pki/pki.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { chapterOf, portsHere, runPasted } from "../harness/pasted.ts";
import { agentFiles, flags, serverFiles } from "../harness/pki-files.ts";
import { Program } from "../harness/program.ts";
import { freePort } from "../harness/targets/absent.ts";
import { tcpTarget } from "../harness/targets/tcp.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";
import { missing } from "../proxies/harness/missing.ts";
import { EmptyRoot, glibcFiles, muslLibraries } from "./harness/empty-root.ts";
import { muslMissing } from "./harness/musl.ts";
import { buildOneFile, oneFile } from "./harness/one-file.ts";

const MANIFEST = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

test("two builds of the same dist/ give the same bytes", async () => {
  using dir = new TempDir();
  const [one, other] = [await oneFile(), await buildOneFile({ folder: dir.path })];
  assert.ok(readFileSync(one).equals(readFileSync(other)));
});

for (const { libc, platform, skip, libraries } of [
  { libc: "glibc", platform: undefined, skip: missing(), libraries: glibcFiles },
  { libc: "musl", platform: "linux-x64-musl", skip: muslMissing() || missing(), libraries: muslLibraries },
]) {
  describe(`the one file, with nothing but ${libc} and /proc`, { skip }, () => {
    let root: EmptyRoot;
    before(async () => {
      const program = await oneFile(platform);
      root = new EmptyRoot(program, libraries(program));
    });
    after(() => root[Symbol.dispose]());

    test("it says its version and revision, explains a code, completes a shell and prints a manual page", () => {
      assert.match(root.run("version"), new RegExp(`^culvert ${MANIFEST.version}\nrevision [0-9a-f]{40}(-dirty)?\n`));
      assert.match(root.run("explain", "dial_timeout"), /^### dial_timeout\n/);
      assert.match(root.run("completion", "bash"), /complete .*culvert/);
      assert.match(root.run("manual", "server"), /^\.TH /m);
    });

    test("the demo finds its program, and makes a CONNECT", () => {
      assert.match(root.run("demo", "--once"), /200 Connection Established[\s\S]*Hello from the other side/);
      assert.deepEqual(readdirSync(join(root.path, "tmp")), []);
    });

    test("the example by hand prints what its page says", async () => {
      const { blocks, script, ports } = await chapterOf("docs/by-hand.md", "An example to paste", root.culvert);
      const own = script
        .replace("--agent-port", `--health-port ${ports.get("8092")} --admin-port ${ports.get("8095")} $&`)
        .replace("--allow-loopback", `--health-server-port ${ports.get("8093")} --admin-server-port 0 $&`);
      const printed = (await runPasted(own, root.path, root.inside)).replaceAll("\r", "");
      assert.equal(printed, blocks.find((block) => block.startsWith("\n"))?.trimStart());
    });

    test("the example of many clusters prints what the page says", async () => {
      const { blocks, free, script } = await chapterOf("docs/clusters.md", "An example to paste", root.culvert);
      const printed = (await runPasted(script, root.path, root.inside)).replaceAll("\r", "");
      const expected = blocks.find((block) => block.startsWith("\n")) ?? assert.fail("the page shows no output");
      assert.ok(printed.includes(free(expected)), printed);
      assert.match(printed, /^blue +open +1 .*\nred +open +1 /m);
    });

    test("the commands that culvert pki prints make a CONNECT", async () => {
      const { free } = await portsHere();
      const printed = root.run("pki", "--dir", "printed");
      const [server = "", agent = "", curl = ""] = (printed.split("a terminal of its own:\n")[1] ?? "")
        .split(/\n{2,}(?= {2}\S)/)
        // curl runs outside, in the folder that is the root inside.
        .map((command) =>
          free(command.trim())
            .replace(/^culvert/, root.culvert)
            .replace(/^curl[\s\S]*/, (line) => line.replaceAll("/printed", "printed")),
        );
      const script = `trap 'kill $(jobs -p) 2>/dev/null' EXIT
        ${server} ${free("--health-port 8092 --admin-port 8095")} > server.log 2>&1 &
        ${agent} ${free("--health-server-port 8093 --admin-server-port 8094")} > agent.log 2>&1 &
        curl -sf --retry 20 --retry-connrefused --retry-delay 1 ${free("http://127.0.0.1:8093/readyz")}
        ${curl} -sS`;
      assert.equal(await runPasted(script, root.path, root.inside), "ok\nok\n");
    });
  });
}

test("it loads nothing from the folder that it is started in, and has the status page, PAC and a log for people", async () => {
  const program = await oneFile();
  using dir = new TempDir();
  for (const name of ["bufferutil", "utf-8-validate", "kerberos", "pino-pretty", "quickjs-wasi", "light-my-request"]) {
    mkdirSync(dir.file(`node_modules/${name}`), { recursive: true });
    writeFileSync(dir.file(`node_modules/${name}/index.js`), 'throw new Error("SMUGGLED")');
  }
  writeFileSync(dir.file("preloaded.js"), 'throw new Error("SMUGGLED")');
  writeFileSync(dir.file("bunfig.toml"), 'preload = ["./preloaded.js"]\n');
  writeFileSync(dir.file(".env"), "CULVERT_LOG_LEVEL=SMUGGLED\n");
  writeFileSync(dir.file("proxy.pac"), 'function FindProxyForURL() { return "DIRECT"; }');
  await createPki({ dir: dir.file("pki") });
  const [serverPort, agentPort, adminPort] = [await freePort(), await freePort(), await freePort()];
  const [healthPort, agentHealth] = [await freePort(), await freePort()];
  const start = (command: string, options: Parameters<typeof flags>[0]) =>
    new Program(`culvert ${command}`, [
      "env",
      "-C",
      dir.path,
      program,
      command,
      ...flags({ ...options, logFormat: "pretty" }),
    ]);
  await using server = start("server", { serverPort, agentPort, adminPort, healthPort, ...serverFiles("pki") });
  await using agent = start("agent", {
    ...{ server: `wss://127.0.0.1:${agentPort}`, allowLoopback: true, pac: dir.file("proxy.pac"), adminServerPort: 0 },
    ...{ healthServerPort: agentHealth, ...agentFiles("pki") },
  });
  await agent.waitForHealth(`http://127.0.0.1:${agentHealth}/readyz`);
  assert.match(await agent.waitForLog(/uplink connected/), /^\[[\d:.]+\] INFO \(culvert-agent\): uplink connected/);
  for (const [path, type, built] of [
    ["", "text/html; charset=utf-8", "index.html"],
    ["main.js", "text/javascript; charset=utf-8", "main.js"],
    ["main.css", "text/css; charset=utf-8", "main.css"],
    ["icon.svg", "image/svg+xml", "icon.svg"],
  ] as const) {
    const response = await fetch(`http://127.0.0.1:${adminPort}/ui/${path}`);
    assert.equal(response.headers.get("content-type"), type);
    assert.equal(await response.text(), readFileSync(join(ROOT, "dist/ui", built), "utf8"));
  }
  const run = async (...args: string[]) => (await promisify(execFile)(program, args, { cwd: dir.path })).stdout;
  assert.match(await run("status", "--admin-address", `127.0.0.1:${adminPort}`), /^default +open +1 /m);
  const doctor = flags({ server: `wss://127.0.0.1:${agentPort}`, ...agentFiles("pki"), pac: dir.file("proxy.pac") });
  assert.match(await run("doctor", ...doctor), /proxy route .*direct: the script of --pac says so/);
  const caller = ["--ca-cert=pki/server-ca.crt", "--cert=pki/client.crt", "--key=pki/client.key"];
  await using target = await tcpTarget((socket) => socket.end("hello"));
  assert.equal(await run("connect", target.address, `--server=127.0.0.1:${serverPort}`, ...caller), "hello");
  for (const { log } of [server, agent]) assert.doesNotMatch(log.join("\n"), /SMUGGLED/);
});

test("the processes of a demo that was killed end, too", async () => {
  using dir = new TempDir();
  await using demo = new Program("culvert demo", [await oneFile(), "demo", "--dir", dir.path]);
  await demo.waitForLog(/curl/);
  const pids = demo.log.flatMap((line) => /process (\d+)/.exec(line)?.[1] ?? []);
  assert.equal(pids.length, 3);
  await demo.kill();
  await waitFor(() => pids.every((pid) => !isRunning(pid)), { what: "server, agent and target to end" });
});

function isRunning(pid: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("culvert");
  } catch {
    return false;
  }
}
