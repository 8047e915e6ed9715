import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { serverOptions } from "../server/options/options.ts";
import { listening } from "../shared/basics/testing/wait.ts";
import { folderOf } from "../shared/documents/testing/files.ts";
import { RUN_SOURCES, source } from "../shared/runtime/testing/project.ts";
import { headOf, headText, runDoctor } from "./doctor.ts";
import { createPki } from "./pki/pki.ts";

const MAIN = fileURLToPath(source("main.ts", import.meta.url));

/** No proxy of whoever runs the tests. */
const ENV = { PATH: process.env["PATH"] };

function doctor(...args: string[]) {
  return doctorIn({}, ...args);
}

function doctorIn(env: NodeJS.ProcessEnv, ...args: string[]) {
  const argv = [...RUN_SOURCES, MAIN, "doctor", ...args];
  const options = { env: { ...ENV, ...env }, encoding: "utf8", timeout: 60_000 } as const;
  const { status: code, stdout, stderr } = spawnSync(process.execPath, argv, options);
  return { code, stdout, stderr };
}

/** The flags of an agent whose server does not run. */
async function flags(t: TestContext): Promise<string[]> {
  const { files } = await createPki({ dir: folderOf(t) });
  // Port 1 is tcpmux: nobody has it.
  const server = ["--server", "wss://127.0.0.1:1", "--ca-cert", files["cluster-ca.crt"]];
  return [...server, "--agent-cert", files["agent.crt"], "--agent-key", files["agent.key"]];
}

test("a report has a line for each step, one sentence for the culprit, and what to do next", async (t) => {
  const { code, stdout, stderr } = doctor(...(await flags(t)));
  assert.equal(stderr, "");
  assert.equal(code, 1);
  assert.match(
    stdout,
    /^culvert \S+, Node \S+, on \S+, 20\S+Z\n\$ culvert doctor --server wss:.+\n\nwss:\/\/127\.0\.0\.1:1\/culvert\/v1\/tunnel\n\n✓ configuration +\d+ ms {2}certificate CN=culvert-agent/,
  );
  assert.match(stdout, /^– dns +skipped: 127\.0\.0\.1 is an address$/m);
  assert.match(stdout, /^✗ tcp +\d+ ms {2}127\.0\.0\.1:1 refused the connection/m);
  assert.match(stdout, /^– not reached: proxy, tls, upgrade, inner tls, admission, clock$/m);
  assert.match(stdout, /\n\nThe connection to 127\.0\.0\.1:1 is refused: .+\nNext: .+\n$/);
});

test("--json is one object with all that was found", async (t) => {
  const { code, stdout } = doctor(...(await flags(t)), "--json");
  assert.equal(code, 1);
  const { healthy, servers, version, node, date, command } = JSON.parse(stdout);
  assert.match([version, node, date].join(" "), /^\S+ v\d\S+ 20\S+Z$/);
  assert.match(command, /^culvert doctor --server wss:\/\/127\.0\.0\.1:1 .* --json$/);
  assert.deepEqual([healthy, servers.length, servers[0].verdict.culprit], [false, 1, "refused"]);
  assert.equal(servers[0].steps[3].finding.by, "127.0.0.1:1");
});

test("without a certificate or token the way is examined, what is wrong on it is the fault, and the credential is named beside it", () => {
  const { code, stdout, stderr } = doctor("--server", "wss://127.0.0.1:1");
  assert.deepEqual([code, stderr], [1, ""]);
  assert.match(stdout, /^✗ configuration +\d+ ms {2}no certificate and no token;/m);
  assert.match(stdout, /^✗ tcp +\d+ ms {2}127\.0\.0\.1:1 refused the connection/m);
  assert.match(
    stdout,
    /\nThe connection to 127\.0\.0\.1:1 is refused: .+\nNext: .+ Beside that: The agent has no credential: /,
  );
  const { servers } = JSON.parse(doctor("--server", "wss://127.0.0.1:1", "--json").stdout);
  assert.equal(servers[0].verdict.culprit, "refused");
  assert.equal(servers[0].steps[0].finding.culprit, "no_credential");
});

test("the doctor ends with its report, also where a question to a name server is still open", () => {
  const open = "--import=data:text/javascript,setInterval(()=>{},1e3)";
  const { code, stdout } = doctorIn({ NODE_OPTIONS: open }, "--server", "wss://127.0.0.1:1");
  assert.equal(code, 1);
  assert.match(stdout, /\nNext: .+\n$/);
});

test("options that cannot be used are sentences, and exit code 2", () => {
  const { code, stdout, stderr } = doctor("--server", "ws://x", "--max-streams", "none");
  assert.deepEqual([code, stdout], [2, ""]);
  assert.match(stderr, /^culvert doctor: --max-streams /m);
  assert.match(stderr, /^See: culvert doctor --help$/m);
});

test("--json is JSON also where a file is missing, with exit code 2", async (t) => {
  const given = await flags(t);
  for (const option of ["--proxy-credentials-file", "--ca-cert", "--config"]) {
    const { code, stdout, stderr } = doctor(...given, option, "/no/such/file", "--json");
    assert.equal(code, 2);
    const { healthy, problems, servers, command } = JSON.parse(stdout);
    assert.deepEqual([healthy, servers], [false, []]);
    assert.ok(problems.includes(`${option}: /no/such/file does not exist.`), stdout);
    assert.match(command, /^culvert doctor /);
    assert.match(stderr, /\/no\/such\/file does not exist/);
  }
});

const commandOf = (...argv: string[]): string => headOf(argv).command;

test("a report begins with version, host, date and command line", () => {
  const head = headOf(["--server", "wss://server:8091"], new Date("2026-06-01T12:00:00Z"));
  assert.match(
    headText(head),
    /^culvert \S+, Node v\d+\.\S+, on \S+, 2026-06-01T12:00:00\.000Z\n\$ culvert doctor --server wss:\/\/server:8091\n$/,
  );
});

for (const [value, shown] of [
  ["http://me:secret@proxy:3128", "http://***@proxy:3128"],
  ["http://me:se,cr/e@t@proxy", "http://***@proxy"],
  ["http://one:3128,http://me:secret@two", "http://***@two"],
  ["me:secret@proxy", "***@proxy"],
  ["http://pac.corp/proxy.pac?token=secret", "http://pac.corp/proxy.pac?***"],
  ["http://pac.corp/proxy.pac?token=secret@1", "http://***@1"],
  ["socks5h://proxy:1080", "socks5h://proxy:1080"],
  ["/etc/culvert/ca.crt", "/etc/culvert/ca.crt"],
] as const) {
  test(`the command line shows ${shown} where ${value.includes("secret") ? "a secret" : "none"} was given`, () => {
    assert.equal(
      commandOf("--proxy", value, `--pac=${value}`).replaceAll("'", ""),
      ["culvert doctor --proxy", shown, `--pac=${shown}`].join(" "),
    );
  });
}

test("a word that a shell would split is quoted, and control characters are not shown", () => {
  assert.equal(commandOf("--agent-id", "two words"), "culvert doctor --agent-id 'two words'");
  assert.match(commandOf("--agent-id=\u001b[2J"), /^[\x20-\x7e]+$/);
});

const REFUSED = {
  cluster: "blue",
  target: "10.0.0.1:10250",
  outcome: "dial_refused",
  sentence: "10.0.0.1:10250 refused the connection: check that something listens there",
  steps: [
    { step: "server", state: "passed", ms: 0.1, detail: 'agent "node-1" (10.0.0.9:443) is picked' },
    { step: "dns", state: "skipped", detail: "not told apart" },
    { step: "dial", state: "failed", ms: 3, detail: "10.0.0.1:10250 refused the connection" },
    { step: "later", state: "not reached", detail: "" },
  ],
};

/** The output, the requests and the exit code where an admin port answers so. */
async function asked(t: TestContext, status: number, answer: object, ...flags: string[]) {
  const questions: string[] = [];
  const server = createServer(async (request, response) => {
    questions.push(`${request.method} ${request.url} ${await text(request)}`);
    response.writeHead(status).end(JSON.stringify(answer));
  });
  const admin = `127.0.0.1:${await listening(t, server)}`;
  let printed = "";
  await runDoctor(["--from-server", "blue", "10.0.0.1:10250", "--admin-address", admin, ...flags], ENV, (part) => {
    printed += part;
  });
  const { exitCode } = process;
  process.exitCode = undefined;
  return { printed, questions, exitCode };
}

test("the server's steps are shown as the doctor's own, with its sentence and where it is explained", async (t) => {
  const { printed, questions, exitCode } = await asked(t, 200, REFUSED);
  assert.deepEqual(questions, ["GET /livez ", 'POST /trial {"cluster":"blue","target":"10.0.0.1:10250"}']);
  assert.equal(exitCode, 1);
  assert.match(
    printed,
    /^culvert \S+, Node \S+, on \S+, 20\S+Z\n\$ culvert doctor --from-server blue 10\.0\.0\.1:10250 .*\n\n/,
  );
  assert.match(printed, /^✓ server +0 ms {2}agent "node-1"/m);
  assert.match(printed, /^✗ dial +3 ms {2}10\.0\.0\.1:10250 refused/m);
  assert.match(
    printed,
    /^– not reached: later\n\n10\.0\.0\.1:10250 refused the connection: .*\nNext: Run culvert explain dial_refused: it says what to do\.\n$/m,
  );
});

test("a target that is reached is exit code 0; --json shows what the server says as it is", async (t) => {
  const answer = { ...REFUSED, outcome: "ok", more: { than: "we know" } };
  const { printed, exitCode } = await asked(t, 200, answer, "--json");
  assert.deepEqual([JSON.parse(printed), exitCode], [answer, undefined]);
});

test("what is no server's admin port is said, and is exit code 1", async (t) => {
  const said = t.mock.method(process.stderr, "write", () => true);
  const { printed, exitCode } = await asked(t, 404, {});
  assert.deepEqual([printed, exitCode], ["", 1]);
  assert.match(String(said.mock.calls[0]?.arguments[0]), /is no admin port of a culvert server/);
});

test("a server that is stopped is given up sooner than a CONNECT would be answered", async (t) => {
  // Its kernel takes connections, and nobody answers them.
  const port = await listening(
    t,
    createTcpServer((socket) => socket.on("error", () => {})),
  );
  const said = t.mock.method(process.stderr, "write", () => true);
  const admin = `127.0.0.1:${port}`;
  await runDoctor(["--from-server", "blue", "10.0.0.1:10250", "--admin-address", admin], ENV, () => {});
  assert.equal(process.exitCode, 1);
  process.exitCode = undefined;
  const [, within] =
    /did not answer within (\d+) s: .* the process hangs/.exec(String(said.mock.calls[0]?.arguments[0])) ?? [];
  assert.ok(Number(within) < serverOptions.options.connectTimeoutMs.default / 1_000, within);
});
