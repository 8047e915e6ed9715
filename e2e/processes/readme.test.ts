import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { before, test } from "node:test";
import { MAIN, requireBuilt } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TempDir } from "../harness/temp.ts";

const README = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
/** Ports that the lines name, and those that they leave to the defaults. */
const PORTS = ["8090", "8091", "8092", "8095", "8103", "8104", "8203", "8204"] as const;
const DEFAULTS =
  "--server-port 8090 --agent-port 8091 --health-port 8092 --admin-port 8095 --server-bind-address 127.0.0.1";

before(requireBuilt);

/** The blocks of Many clusters, and its lines as a script of ports that are free here. */
async function manyClusters() {
  const chapter = README.split("\n## Many clusters\n")[1]?.split("\n## ")[0] ?? "";
  // Between the fences every second part is a block, and begins with its language.
  const blocks = chapter.split(/^```/m).filter((_, index) => index % 2 === 1);
  const ports = new Map(await Promise.all(PORTS.map(async (port) => [port, String(await freePort())] as const)));
  const free = (text: string) => text.replace(/\b8\d{3}\b/g, (port) => ports.get(port as "8090") ?? port);
  const script = blocks
    .filter((block) => block.startsWith("sh\n"))
    .map((block) => block.slice(3))
    .join("\n")
    .replace("--clusters many/clusters.yaml", (flag) => `${flag} ${DEFAULTS}`)
    .replace("main.js status", "main.js status --admin-address 127.0.0.1:8095")
    .replaceAll("node dist/cli/main.js", `${process.execPath} ${MAIN}`);

  return { blocks, free, ports, script: free(`trap 'kill $(jobs -p) 2>/dev/null' EXIT\n${script}\nwait`) };
}

test("the lines of Many clusters do what README says that they print, and end what they have started", async () => {
  using dir = new TempDir();
  const { blocks, free, script } = await manyClusters();
  // curl shows HTTP's lines with their CR.
  const printed = (await run(`${script}\necho "left: $(jobs -p)."`, dir.path)).replaceAll("\r", "");
  const expected = blocks.find((block) => block.startsWith("\n")) ?? assert.fail("README does not say what is printed");
  assert.ok(printed.includes(free(expected)), printed);
  assert.match(printed, /^blue +open +1 .*\nred +open +1 /m);
  assert.match(printed, /^blue +blue-node +carried /m);
  assert.match(printed, /^left: \.$/m);
});

test("where a port is taken, the lines of Many clusters show the log that says so", async () => {
  using dir = new TempDir();
  const { ports, script } = await manyClusters();
  const port = Number(ports.get("8090"));
  await using taken = createServer().listen(port, "127.0.0.1");
  await once(taken, "listening");
  const [upToReady = ""] = script.split("\nthrough()"); // what comes behind it is of no use without a server
  const impatient = upToReady.replace("--retry 20", "--retry 1").replace("\nready()", "\nwait $server\nready()");
  const printed = await run(`${impatient}\nkill $blue $red`, dir.path);
  assert.match(printed, new RegExp(`many/server\\.log <==\n.*port ${port}: it is in use .*--server-port`), printed);
});

function run(script: string, cwd: string): Promise<string> {
  return new Promise((resolve) => {
    execFile("bash", ["-c", script], { cwd, timeout: 60_000 }, (_error, stdout, stderr) => resolve(stdout + stderr));
  });
}
