import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { folderOf } from "../shared/documents/testing/files.ts";
import { HttpsStub } from "../shared/kubernetes/testing/https-stub.ts";
import { fetchText, start } from "./testing/server.ts";

const FAILING = /^culvert_server_token_review_failing\{cluster="default"\} (\d)$/m;
const NO = { status: 201, body: { status: { authenticated: false } } };

test("readyz, metrics and log say that tokens cannot be verified before an agent has come, and where that is wanted the server is not ready", async (t) => {
  const stub = await HttpsStub.start(t);
  let answer = { status: 403, body: "" as unknown };
  stub.answer = () => answer;
  const kubeconfig = await stub.kubeconfig(folderOf(t));
  const options = {
    ...{ kubeconfig, authenticationAudience: "culvert", agentNamespace: "culvert", agentServiceAccount: "agent" },
    clusterCaCert: "",
  };
  await using server = await start(options);
  await using strict = await start({ ...options, readyNeedsTokenReview: true });
  const readyz = ({ addresses }: typeof server, port: "health" | "admin" = "admin") =>
    fetchText(addresses[port]?.port, "/readyz?verbose");
  const failing = async (): Promise<string | undefined> => FAILING.exec(await server.metrics.registry.metrics())?.[1];

  await until(
    async () => (await failing()) === "1" && strict.lines.some(({ msg }) => msg === "tokens cannot be verified"),
  );
  // Lines of readyz about clusters are at most a second old.
  await until(async () => /warning: cluster/.test((await readyz(server)).text));
  const { status, text } = await readyz(server);
  assert.equal(status, 200);
  assert.match(
    text,
    /^\[\+\]token-reviews ok: 0 of 1 API servers answer; warning: cluster "default": .* answered 403: bind the/m,
  );
  assert.match(
    (await readyz(server, "health")).text,
    /^\[\+\]token-reviews ok: 0 of 1 API servers answer; 1 warning, named at/m,
  );
  assert.match((await readyz(strict)).text, /^\[-\]token-reviews failed/m);
  const said = server.lines.filter(({ msg }) => msg === "tokens cannot be verified");
  assert.deepEqual(
    said.map(({ level, cluster }) => [level, cluster]),
    [["warn", "default"]],
  );

  answer = NO;
  await using other = await start({ ...options, readyNeedsTokenReview: true });
  await until(async () => (await readyz(other)).status === 200);
  assert.match((await readyz(other)).text, /^\[\+\]token-reviews ok: 1 of 1 API servers answer$/m);
});
