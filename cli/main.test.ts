import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { buildInfo } from "../shared/basics/program.ts";
import { listening } from "../shared/basics/testing/wait.ts";
import { folderOf } from "../shared/documents/testing/files.ts";
import { ROOT, RUN_SOURCES, source } from "../shared/runtime/testing/project.ts";
import { CLUSTER_HEADING } from "./status/table.ts";

const MAIN = fileURLToPath(source("main.ts", import.meta.url));

function culvert(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...RUN_SOURCES, MAIN, ...args], { stdio: ["ignore", "pipe", "pipe"] });
    let [stdout, stderr] = ["", ""];
    child.stdout.on("data", (chunk) => (stdout += String(chunk)));
    child.stderr.on("data", (chunk) => (stderr += String(chunk)));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout, stderr }));
  });
}

test("version shows what a bug report needs, as lines or as JSON", async () => {
  const { version, revision, node } = buildInfo();
  const { openssl } = process.versions;
  const [lines, json] = await Promise.all([culvert("version"), culvert("version", "--json")]);
  const text = `culvert ${version}\nrevision ${revision}\nNode.js ${node}\nOpenSSL ${openssl}\n`;
  assert.deepEqual(lines, { code: 0, stdout: text, stderr: "" });
  assert.deepEqual(JSON.parse(json.stdout), { version, revision, node, openssl });
});

test("explain shows what docs/errors.md says of a code; one that is unknown is exit code 2", async () => {
  const [known, unknown] = await Promise.all([culvert("explain", "no_agent"), culvert("explain", "no-agnet")]);
  assert.equal(known.code, 0);
  assert.match(known.stdout, /^### no_agent\n/);
  assert.deepEqual(unknown, {
    code: 2,
    stdout: "",
    stderr: 'culvert: There is no code "no-agnet": did you mean no_agent?\n',
  });
});

test("status --watch goes on until Ctrl-C, however often it comes, which is exit code 0", {
  timeout: 20_000,
}, async (t) => {
  const server = createServer(
    (_request, response) => void response.end('{"kind":"server","serverId":"a","clusters":[]}'),
  );
  const address = `127.0.0.1:${await listening(t, server)}`;
  const argv = [...RUN_SOURCES, MAIN, "status", "--watch", "--json", `--admin-address=${address}`];
  const child = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const exited = once(child, "exit");
  await once(child.stdout, "data");
  const again = setInterval(() => child.kill("SIGINT"), 1);
  t.after(() => clearInterval(again));
  assert.deepEqual(await exited, [0, null]);
});

const FOR_PEOPLE = "--log-format=pretty";

test("a wrong configuration is sentences on stderr without a stack, and exit code 2", async () => {
  const { code, stdout, stderr } = await culvert("agent", "--srever=wss://x", "--log-level=loud", FOR_PEOPLE);
  assert.equal(code, 2);
  assert.equal(stdout, "");
  assert.match(stderr, /^culvert agent: There is no flag --srever\. Did you mean --server\?$/m);
  assert.match(stderr, /^culvert agent: --log-level needs one of /m);
  assert.doesNotMatch(stderr, /Which server/, "it was misspelt, not left out");
  assert.doesNotMatch(stderr, /^ +at /m);
});

test("where the log is JSON, a wrong configuration is lines of it, and nothing else", async () => {
  const { code, stdout, stderr } = await culvert("agent", "--srever=wss://x", "--log-level=loud");
  assert.deepEqual([code, stderr], [2, ""]);
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  assert.ok(lines.every(({ level, name }) => level === "fatal" && name === "culvert-agent"));
  assert.equal(lines[0]?.reason, "There is no flag --srever. Did you mean --server?");
});

test("a log that is silent does not hide why a start has failed", async () => {
  const { stdout, stderr } = await culvert("agent", "--log-level=silent");
  assert.equal(stdout, "");
  assert.match(stderr, /^culvert agent: Which server\?/m);
});

test("--print-config goes to stdout, its faults to stderr", async () => {
  const { code, stdout, stderr } = await culvert("server", "--print-config", "--uds_name=/run/x.sock");
  assert.equal(code, 2);
  assert.match(stdout, /^uds-name: "\/run\/x\.sock" # flag$/m);
  assert.match(stdout, /^connect-timeout: 8s # default$/m);
  assert.match(stderr, /--cluster-cert and --cluster-key/);
});

test("--help and help show a command's options, an example, and every column of its table", async () => {
  const [asked, same, all, unknown, status] = await Promise.all(
    [["help", "agent"], ["agent", "--help"], ["help"], ["help", "sever"], ["status", "--help"]].map((args) =>
      culvert(...args),
    ),
  );
  assert.deepEqual([asked?.code, asked?.stdout], [0, same?.stdout]);
  assert.match(asked?.stdout ?? "", /--server <list>[\s\S]*For example:\n {2}culvert agent --server wss:/);
  assert.match(all?.stdout ?? "", /^Commands:\n {2}server /m);
  assert.equal(unknown?.code, 2);
  for (const column of [...CLUSTER_HEADING.slice(2), "LINK", "REFUSED-AT"])
    assert.match(status?.stdout ?? "", new RegExp(`\\s${column}\\s`), column);
});

test("a fault of the command line is one sentence and exit code 2, from commander or from an option table", async () => {
  const [atRoot, atPki] = ["See: culvert --help", "See: culvert pki --help"];
  const noName = 'needs at least one name or address, not "": give one, or leave the flag out';
  const cases: [args: string[], sentence: string, next?: string][] = [
    [
      ["doctor", "--from-server"],
      "culvert doctor: missing required argument 'cluster'",
      "See: culvert doctor --from-server --help",
    ],
    [["frobnicate"], "culvert: unknown command 'frobnicate'", atRoot],
    [["pki", "--server-san="], `culvert: --server-san ${noName}`, atPki],
    [["pki", "--cluster-san", ""], `culvert: --cluster-san ${noName}`, atPki],
    [["pki", "--cluster-san=a", "--cluster-san= , "], `culvert: --cluster-san ${noName.replace('""', '" , "')}`, atPki],
    [["pki", "kubernetes", "--days=x"], 'culvert: --days needs a whole number from 1 to 99999, not "x"'],
    [["status", "--admin-port=8095"], "culvert: There is no flag --admin-port. Here it is --admin-address."],
    [["status", "--json=1"], "culvert: --json takes no value."],
    [["pki", "--once=1"], "culvert: unknown option '--once=1'"],
    [["pki", "--days=0"], 'culvert: --days needs a whole number from 1 to 99999, not "0"'],
    [["doctor", "--server-cert=x"], "culvert doctor: There is no flag --server-cert. It is one of culvert server."],
    [["server", "--help=1", FOR_PEOPLE], "culvert server: --help takes no value but all."],
  ];
  const answers = await Promise.all(cases.map(([args]) => culvert(...args)));
  assert.deepEqual(
    answers.map(({ code, stderr }) => [code, stderr.split("\n")[0]]),
    cases.map(([, sentence]) => [2, sentence]),
  );
  // Errors of a command with an option table are asserted in their own tests.
  for (const [index, [args, , next]] of cases.entries())
    if (next !== undefined) assert.equal(answers[index]?.stderr.trimEnd().split("\n").at(-1), next, args.join(" "));
});

test("a reader that closes its end early ends nothing, and a full disk is a sentence", async (t) => {
  const dir = folderOf(t);
  const child = spawn(process.execPath, [...RUN_SOURCES, MAIN, "pki", "--dir", join(dir, "set")], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stderr = "";
  child.stderr.on("data", (chunk) => (stderr += String(chunk)));
  child.stdout.destroy();
  const [code] = await once(child, "close");
  assert.deepEqual([code, stderr], [0, ""]);
  assert.equal((await readdir(join(dir, "set"))).length, 13);

  for (const argv of ["server --help", "--help", "pki --help", "doctor --from-server --help", "version"]) {
    const line = `"${process.execPath}" ${RUN_SOURCES.join(" ")} "${MAIN}" ${argv} >/dev/full`;
    const full = spawn("bash", ["-c", line], { stdio: ["ignore", "ignore", "pipe"] });
    let complaint = "";
    full.stderr.on("data", (chunk) => (complaint += String(chunk)));
    assert.deepEqual(await once(full, "close"), [1, null], argv);
    assert.equal(complaint, "culvert: cannot write to stdout: ENOSPC: no space left on device, write\n");
  }
});

test("pki kubernetes that cannot ask is exit code 1 and a sentence, and its command line is its own", async () => {
  const options = ["--namespace=a", "--name=b", "--server-names=c", "--days=3"];
  const { code, stdout, stderr } = await culvert("pki", "kubernetes", ...options, "--kubeconfig=/nonexistent/config");
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /^culvert pki kubernetes: kubeconfig \/nonexistent\/config: .*there is no such file\n$/);
  assert.match((await culvert("pki", "kubernetes")).stderr, /^culvert: required option '--namespace/);
});

test("an unknown command names the nearest one, and is exit code 2", async () => {
  const { code, stderr } = await culvert("sever");
  assert.equal(code, 2);
  assert.match(stderr, /unknown command 'sever'[\s\S]*server/);
});

test("a Node.js or Bun that is too old is one sentence, and the version that is needed is that of package.json", async () => {
  const { engines } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8"));
  assert.equal(engines.node, ">=20.19");
  const sentence = (runtime: string, least = "20.19") =>
    `culvert: ${runtime} is too old: culvert needs ${least} or newer. Install it, and run culvert with it\n`;
  for (const [disguised, code, complaint] of [
    [{ node: "18.20.8" }, 1, sentence("Node.js 18.20.8")],
    [{ node: "20.18.3" }, 1, sentence("Node.js 20.18.3")],
    [{ node: "20.19.0" }, 0, ""],
    [{ node: "21.0.0" }, 0, ""],
    [{ node: "26.3.0", bun: "1.3.9" }, 1, sentence("Bun 1.3.9", "1.4.5")],
    [{ node: "26.3.0", bun: "1.10.0" }, 0, ""],
  ] as const) {
    const versions = JSON.stringify({ ...process.versions, ...disguised });
    const disguise = `data:text/javascript,Object.defineProperty(process,"versions",{value:${versions}})`;
    const { status, stderr } = spawnSync(process.execPath, [...RUN_SOURCES, "--import", disguise, MAIN, "version"], {
      encoding: "utf8",
    });
    assert.deepEqual([status, stderr], [code, complaint]);
  }
});
