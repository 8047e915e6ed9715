import { closeSync, createReadStream, existsSync, openSync, writeSync } from "node:fs";
import { Payload, PayloadCheck } from "../../harness/payload.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { PORTS } from "../world/addresses.ts";

const MB = 1_000_000;
const EXEC_BYTES = 100 * MB;
const COPY_BYTES = 200 * MB;
const FORWARDED_BYTES = MB;
const FORWARDED_REQUESTS = 20;

/** kubectl speaks WebSocket to kube-apiserver since 1.31, and SPDY when it is told to. */
const SPDY = { KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "false", KUBECTL_PORT_FORWARD_WEBSOCKETS: "false" };

/** What kubectl does with a pod. */
export const STREAMS: readonly Check[] = [
  { name: "logs", deadlineMs: 10_000, run: logs },
  { name: "logs -f, 30 s of silence", deadlineMs: 60_000, beside: true, run: quietLogs },
  { name: "exec", deadlineMs: 10_000, run: (stage) => exec(stage, {}) },
  { name: "exec over SPDY", deadlineMs: 10_000, run: (stage) => exec(stage, SPDY) },
  { name: "attach -i", deadlineMs: 10_000, run: attach },
  { name: "exec -i, 100 MB in and out", deadlineMs: 60_000, goal: "time", run: bigExec },
  { name: "cp, 200 MB in and out", deadlineMs: 60_000, goal: "time", run: copy },
  { name: "port-forward, 20 requests at once", deadlineMs: 20_000, run: (stage) => portForward(stage, {}) },
  { name: "port-forward over SPDY", deadlineMs: 20_000, run: (stage) => portForward(stage, SPDY) },
];

async function logs({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["logs", "stand-in", "-c", "counter"]);
  const lines = stdout.trimEnd().split("\n");
  expect(lines.length === 1000 && lines[999] === "line 1000", "1000 numbered lines", stdout);
  return { printed: `${lines[0]} … ${lines[999]}`, seconds };
}

async function quietLogs({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["logs", "-f", "stand-in", "-c", "quiet-30"]);
  expect(stdout === "before the silence\nafter the silence\n" && seconds >= 30, "a line, 30 s, a line", stdout);
  return { printed: oneLine(stdout), seconds };
}

async function exec({ kubectl }: Stage, env: Readonly<Record<string, string>>): Promise<Seen> {
  const script = "echo out; echo err >&2; exit 3";
  const { code, stdout, stderr, seconds } = await kubectl.run(inPod([], ["sh", "-c", script]), { env });
  const all = `${stdout}${stderr}exit code ${code}`;
  expect(stdout === "out\n" && stderr.startsWith("err\n") && code === 3, "both streams and the exit code", all);
  return { printed: oneLine(all), seconds };
}

async function attach({ kubectl }: Stage): Promise<Seen> {
  const { stdout, seconds } = await kubectl.must(["attach", "-i", "stand-in", "-c", "main"], { stdin: "to and fro\n" });
  expect(stdout.includes("to and fro\n"), "what was typed", stdout);
  return { printed: oneLine(stdout), seconds };
}

async function bigExec({ world, kubectl }: Stage): Promise<Seen> {
  const file = payloadFile(world.dir.file("exec"), EXEC_BYTES);
  const check = new PayloadCheck();
  const { seconds } = await kubectl.must(inPod(["-i"], ["cat"]), { stdin: { file }, onStdout: (c) => check.take(c) });
  check.expect(EXEC_BYTES, "what came back");
  return { printed: `${check.bytes} bytes as sent`, seconds };
}

async function copy({ world, kubectl, lane }: Stage): Promise<Seen> {
  const here = payloadFile(world.dir.file("copy"), COPY_BYTES);
  const there = world.dir.file(`copy-in-pod-${lane}`);
  const back = world.dir.file(`copy-back-${lane}`);
  const into = await kubectl.must(["cp", here, `default/stand-in:${there}`, "-c", "main"]);
  const outOf = await kubectl.must(["cp", `default/stand-in:${there}`, back, "-c", "main"]);
  const check = new PayloadCheck();
  for await (const chunk of createReadStream(back, { highWaterMark: MB })) check.take(chunk);
  check.expect(COPY_BYTES, "the copy of the copy");
  const printed = `in ${into.seconds.toFixed(1)} s, out ${outOf.seconds.toFixed(1)} s, as sent`;
  return { printed, seconds: into.seconds + outOf.seconds };
}

async function portForward({ world, kubectl, signal }: Stage, env: Readonly<Record<string, string>>): Promise<Seen> {
  await using forward = kubectl.start(["port-forward", "pod/stand-in", `:${PORTS.http}`], env);
  const [line, port] = await forward.waitForLog(/Forwarding from 127\.0\.0\.1:(\d+)/);
  const request = ["curl", "-sS", `http://127.0.0.1:${port}/bytes/${FORWARDED_BYTES}`];
  const started = performance.now();
  const requests = Array.from({ length: FORWARDED_REQUESTS }, async () => {
    const check = new PayloadCheck();
    await world.network.controlPlane.must(request, { onStdout: (chunk) => check.take(chunk), signal });
    check.expect(FORWARDED_BYTES, "an answer");
  });
  await Promise.all(requests);
  return { printed: `${line}: ${FORWARDED_REQUESTS} × ${FORWARDED_BYTES} bytes as sent`, seconds: since(started) };
}

function inPod(options: readonly string[], argv: readonly string[]): string[] {
  return ["exec", ...options, "stand-in", "-c", "main", "--", ...argv];
}

/** Made once; the stand-in's web server sends the same bytes. */
function payloadFile(path: string, length: number): string {
  if (existsSync(path)) return path;
  const file = openSync(path, "w");
  const payload = new Payload();
  for (let at = 0; at < length; ) at += writeSync(file, payload.at(at, length - at));
  closeSync(file);
  return path;
}

export function oneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, " ⏎ ");
}

export function since(started: number): number {
  return (performance.now() - started) / 1000;
}
