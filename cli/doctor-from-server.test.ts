import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { serverOptions } from "../server/options/options.ts";
import { runFromServer } from "./doctor-from-server.ts";

const REFUSED = {
  ...{ cluster: "blue", target: "10.0.0.1:10250", outcome: "dial_refused" },
  sentence: "10.0.0.1:10250 refused the connection: check that something listens there",
  steps: [
    { step: "server", state: "passed", ms: 0.1, detail: 'agent "node-1" (10.0.0.9:443) is picked' },
    { step: "dns", state: "skipped", detail: "not told apart" },
    { step: "dial", state: "failed", ms: 3, detail: "10.0.0.1:10250 refused the connection" },
    { step: "later", state: "not reached", detail: "" },
  ],
};

/** What is printed, asked and returned where an admin port answers so. */
async function asked(t: TestContext, status: number, answer: object, ...flags: string[]) {
  const questions: string[] = [];
  const server = createServer(async (request, response) => {
    questions.push(`${request.method} ${request.url} ${await text(request)}`);
    response.writeHead(status).end(JSON.stringify(answer));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const admin = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  let printed = "";
  await runFromServer(["blue", "10.0.0.1:10250", "--admin-address", admin, ...flags], (part) => {
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
  const server = createTcpServer((socket) => socket.on("error", () => {}));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const said = t.mock.method(process.stderr, "write", () => true);
  const admin = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  await runFromServer(["blue", "10.0.0.1:10250", "--admin-address", admin], () => {});
  assert.equal(process.exitCode, 1);
  process.exitCode = undefined;
  const [, within] =
    /did not answer within (\d+) s: .* the server hangs/.exec(String(said.mock.calls[0]?.arguments[0])) ?? [];
  assert.ok(Number(within) < serverOptions.options.connectTimeoutMs.default / 1_000, within);
});
