import { PayloadCheck } from "../../harness/payload.ts";
import { type Check, expect, oneLine, type Seen, type Stage, since } from "../check.ts";
import { PORTS } from "../world/addresses.ts";
import { inMain } from "../world/kubectl.ts";
import { checkedFile, payloadFile } from "./payload-file.ts";
import { type Protocol, spoken } from "./protocol.ts";

const MB = 1_000_000;
const EXEC_BYTES = 100 * MB;
const COPY_BYTES = 200 * MB;
const FORWARDED_BYTES = MB;
const FORWARDED_REQUESTS = 20;

/** Commands of kubectl with a pod. */
export const STREAMS: readonly Check[] = [
  { name: "logs", deadlineMs: 10_000, everyLane: true, run: logs },
  { name: "logs -f, 30 s of silence", deadlineMs: 60_000, beside: true, run: quietLogs },
  { name: "exec over WebSocket", deadlineMs: 15_000, everyLane: true, run: (stage) => exec(stage, "WebSocket") },
  { name: "exec over SPDY", deadlineMs: 15_000, run: (stage) => exec(stage, "SPDY") },
  { name: "attach -i", deadlineMs: 10_000, run: attach },
  { name: "exec -i, 100 MB in and out", deadlineMs: 60_000, goal: "time", run: bigExec },
  { name: "cp, 200 MB in and out", deadlineMs: 60_000, goal: "time", run: copy },
  { name: "port-forward over WebSocket", deadlineMs: 20_000, run: (stage) => portForward(stage, "WebSocket") },
  { name: "port-forward over SPDY", deadlineMs: 20_000, run: (stage) => portForward(stage, "SPDY") },
];

async function logs({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["logs", "stand-in", "-c", "counter"]);
  const lines = stdout.trimEnd().split("\n");
  expect(lines.length === 1000 && lines[999] === "line 1000", "1000 numbered lines", stdout);
  return { printed: `${lines[0]} … ${lines[999]}`, seconds };
}

export async function quietLogs({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["logs", "-f", "stand-in", "-c", "quiet-30"]);
  expect(stdout === "before the silence\nafter the silence\n" && seconds >= 30, "a line, 30 s, a line", stdout);
  return { printed: oneLine(stdout), seconds };
}

async function exec(stage: Stage, protocol: Protocol): Promise<Seen> {
  const command = inMain("stand-in", ["sh", "-c", "echo out; echo err >&2; exit 3"]);
  const { result, way } = await spoken(stage, "exec", protocol, (env) => stage.kubectl.run(command, { env }));
  const { code, stdout, stderr, seconds } = result;
  const all = `${stdout}${stderr}exit code ${code}`;
  expect(stdout === "out\n" && stderr.startsWith("err\n") && code === 3, "both streams and the exit code", all);
  return { printed: `${oneLine(all)} (${way})`, seconds };
}

async function attach({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["attach", "-i", "stand-in", "-c", "main"], { stdin: "to and fro\n" });
  expect(stdout.includes("to and fro\n"), "what was typed", stdout);
  return { printed: oneLine(stdout), seconds };
}

async function bigExec({ world, kubectl }: Stage): Promise<Seen> {
  using folder = world.folder();
  const file = payloadFile(folder.file("in"), EXEC_BYTES);
  const check = new PayloadCheck();
  const { seconds } = await kubectl.must(inMain("stand-in", ["cat"], "-i"), {
    stdin: { file },
    onStdout: (c) => check.take(c),
  });
  check.expect(EXEC_BYTES, "what came back");
  return { printed: `${check.bytes} bytes as sent`, seconds };
}

/** The pod is of this machine, and its files are here too. */
async function copy({ world, kubectl }: Stage): Promise<Seen> {
  using folder = world.folder();
  const here = payloadFile(folder.file("here"), COPY_BYTES);
  const [there, back] = [folder.file("there"), folder.file("back")];
  const into = await kubectl.must(["cp", here, `default/stand-in:${there}`, "-c", "main"]);
  const outOf = await kubectl.must(["cp", `default/stand-in:${there}`, back, "-c", "main"]);
  await checkedFile(back, COPY_BYTES);
  const printed = `in ${into.seconds.toFixed(1)} s, out ${outOf.seconds.toFixed(1)} s, as sent`;
  return { printed, seconds: into.seconds + outOf.seconds };
}

async function portForward(stage: Stage, protocol: Protocol): Promise<Seen> {
  const { result: seconds, way } = await spoken(stage, "portforward", protocol, (env) => forwardedRequests(stage, env));
  return { printed: `${FORWARDED_REQUESTS} × ${FORWARDED_BYTES} bytes at once, as sent (${way})`, seconds };
}

/** Seconds that they take, all at once. */
async function forwardedRequests({ world, kubectl, signal }: Stage, env: Readonly<Record<string, string>>) {
  await using forward = kubectl.start(["port-forward", "pod/stand-in", `:${PORTS.http}`], env);
  const port = /:(\d+) ->/.exec(await forward.waitForLog(/Forwarding from 127\.0\.0\.1:\d+/))?.[1];
  const request = ["curl", "-sS", `http://127.0.0.1:${port}/bytes/${FORWARDED_BYTES}`];
  const started = performance.now();
  const requests = Array.from({ length: FORWARDED_REQUESTS }, async () => {
    const check = new PayloadCheck();
    await world.network.controlPlane.must(request, { onStdout: (chunk) => check.take(chunk), signal });
    check.expect(FORWARDED_BYTES, "an answer");
  });
  await Promise.all(requests);
  return since(started);
}
