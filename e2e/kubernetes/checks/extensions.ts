import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, oneLine, type Seen, type Stage } from "../check.ts";
import type { Culvert } from "../world/culvert.ts";
import { CULVERT_LANES } from "../world/lanes.ts";
import { AGGREGATED_API, judgedBy } from "../world/objects.ts";
import { nothingLeftBehind } from "./leftovers.ts";

const NODE_METRICS = "/api/v1/nodes/stand-in/proxy/metrics";
const WEB = "/api/v1/namespaces/default/services";

/** Requests of kube-apiserver itself to the cluster: its proxies, webhooks and aggregated APIs. */
export const EXTENSIONS: readonly Check[] = [
  { name: "nodes/N/proxy/metrics", deadlineMs: 10_000, run: (stage) => raw(stage, NODE_METRICS, "# TYPE ") },
  { name: "service proxy, http", deadlineMs: 10_000, run: (stage) => serviceProxy(stage, "http:web:http") },
  { name: "service proxy, https", deadlineMs: 10_000, run: (stage) => serviceProxy(stage, "https:web:https") },
  { name: "webhook that allows", deadlineMs: 15_000, everyLane: true, run: allow },
  { name: "webhook that denies", deadlineMs: 15_000, run: deny },
  { name: "webhook with timeoutSeconds 2, black hole", deadlineMs: 30_000, lanes: CULVERT_LANES, run: impatient },
  { name: "aggregated API", deadlineMs: 60_000, run: aggregated },
];

async function raw({ kubectl }: Stage, path: string, wanted: string): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["get", "--raw", path]);
  expect(stdout.includes(wanted), wanted, stdout);
  return { printed: oneLine(stdout.split("\n").find((line) => line.includes(wanted)) ?? ""), seconds };
}

function serviceProxy(stage: Stage, name: string): Promise<Seen> {
  return raw(stage, `${WEB}/${name}/proxy/some/path`, "hello from the stand-in, path /some/path");
}

async function allow({ kubectl }: Stage): Promise<Seen> {
  const { code, stdout, stderr, seconds } = await kubectl.dryRun(judgedBy("stand-in"));
  expect(code === 0, "an object that is allowed", stderr);
  return { printed: oneLine(stdout), seconds };
}

async function deny({ kubectl }: Stage): Promise<Seen> {
  const { code, stderr, seconds } = await kubectl.dryRun(judgedBy("stand-in", { "culvert.test/deny": "true" }));
  expect(code === 1 && stderr.includes("denied the request"), "a denial", stderr);
  return { printed: oneLine(stderr), seconds };
}

/**
 * kube-apiserver stops waiting after two seconds, which is before the agent gives up its dial: so the message is its
 * own and not culvert's. It does not hang up, since its dialer waits for an answer to CONNECT whatever the request's
 * deadline: the CONNECT that nobody wants any more ends with the agent's dial, and nothing stays behind.
 */
async function impatient({ world, kubectl }: Stage): Promise<Seen> {
  const before = await timeouts(world.culvert);
  const { code, stderr, seconds } = await kubectl.dryRun(judgedBy("impatient"));
  const itsOwn = /timeout=2s.*context deadline exceeded/.test(stderr) && !stderr.includes("did not answer within");
  expect(code === 1 && itsOwn && seconds < 10, "a failure after 2 s", `${seconds} s: ${stderr}`);
  await nothingLeftBehind(world.culvert);
  const ended = (await timeouts(world.culvert)) - before;
  expect(ended === 1, "one CONNECT that ended in dial_timeout", String(ended));
  return { printed: oneLine(stderr), seconds };
}

async function timeouts(culvert: Culvert): Promise<number> {
  const labels = { cluster: "default", outcome: "dial_timeout" };
  return (await culvert.scrapeServer()).value("culvert_server_connections_total", labels);
}

async function aggregated({ kubectl }: Stage): Promise<Seen> {
  await kubectl.must(["wait", "--for=condition=Available", `apiservice/${AGGREGATED_API}`, "--timeout=50s"]);
  // Available, and yet kubectl may be told of its resources a moment later.
  const get = () => kubectl.run(["get", "echoes.stand-in.culvert.test", "-A", "-o", "name"]);
  const got = async () => {
    const { stdout, seconds } = await get();
    return stdout === "echo.stand-in.culvert.test/hello\n" ? { printed: oneLine(stdout), seconds } : undefined;
  };
  return await waitFor(got, { deadlineMs: 20_000, everyMs: 250, what: "the resource of the aggregated API" });
}
