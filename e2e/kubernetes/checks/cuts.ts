import { statSync } from "node:fs";
import { PayloadCheck } from "../../harness/payload.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { PORTS } from "../world/addresses.ts";
import { inMain } from "../world/kubectl.ts";
import { lanesWith } from "../world/lanes.ts";
import { type Cut, resumes, whileCut } from "./cut-path.ts";
import { checkedFile, payloadFile } from "./payload-file.ts";
import { spoken } from "./protocol.ts";
import { quietLogs } from "./streams.ts";

const BYTES = 100_000_000;
/** A download is so fast that it needs more to be cut as often. */
const DOWNLOAD_BYTES = 400_000_000;
const LINES = 300;

const THREE: readonly Cut[] = [{ at: 0.2 }, { at: 0.45 }, { at: 0.7 }];
const TWO: readonly Cut[] = [{ at: 0.25 }, { at: 0.6 }];
/** The last one lasts: the agent dials in vain for a while. */
const LASTING: readonly Cut[] = [{ at: 0.2 }, { at: 0.4 }, { at: 0.6, awayMs: 2_000 }];

const cutOften = { deadlineMs: 90_000, lanes: lanesWith("culvert") } as const;

/**
 * The agent's connection is cut, again and again; whoever uses kubectl notices a pause (docs/link.md). A stock agent
 * resumes nothing.
 */
export const CUTS: readonly Check[] = [
  { name: "logs -f, 30 s of silence, connection cut meanwhile", ...cutOften, beside: true, run: silence },
  { name: "exec -i, 100 MB in and out, connection cut 3 times", ...cutOften, run: exec },
  { name: "cp, 100 MB in and out, connection cut 4 times", ...cutOften, run: copy },
  { name: "logs -f, connection cut 3 times", ...cutOften, run: logs },
  { name: "port-forward, 400 MB, connection cut 3 times", ...cutOften, run: portForward },
  { name: "service proxy, 400 MB, connection cut 3 times", ...cutOften, run: serviceProxy },
];

/** Beside the others, whose cuts are its own. */
async function silence(stage: Stage): Promise<Seen> {
  const before = await resumes(stage.world.culvert);
  const seen = await quietLogs(stage);
  const cuts = (await resumes(stage.world.culvert)) - before;
  expect(cuts > 0, "cuts meanwhile", String(cuts));
  return seen;
}

async function exec(stage: Stage): Promise<Seen> {
  using folder = stage.world.folder();
  const file = payloadFile(folder.file("in"), BYTES);
  const check = new PayloadCheck();
  const { result, way } = await spoken(stage, "exec", "WebSocket", (env) => {
    const onStdout = (chunk: Buffer) => check.take(chunk);
    const work = stage.kubectl.must(inMain("stand-in", ["cat"], "-i"), { stdin: { file }, onStdout, env });
    return whileCut(stage, THREE, work, () => check.bytes / BYTES);
  });
  check.expect(BYTES, "what came back");
  return { printed: `${check.bytes} bytes as sent (${way})`, seconds: result.seconds };
}

async function copy(stage: Stage): Promise<Seen> {
  using folder = stage.world.folder();
  const here = payloadFile(folder.file("here"), BYTES);
  const [there, back] = [folder.file("there"), folder.file("back")];
  const cp = async (from: string, to: string, arriving: string) => {
    const work = stage.kubectl.must(["cp", from, to, "-c", "main"]);
    const size = () => statSync(arriving, { throwIfNoEntry: false })?.size ?? 0;
    return (await whileCut(stage, TWO, work, () => size() / BYTES)).seconds;
  };
  const into = await cp(here, `default/stand-in:${there}`, there);
  const outOf = await cp(`default/stand-in:${there}`, back, back);
  await checkedFile(back, BYTES);
  return { printed: "as sent", seconds: into + outOf };
}

async function logs(stage: Stage): Promise<Seen> {
  const chunks: Buffer[] = [];
  const text = () => Buffer.concat(chunks).toString();
  const onStdout = (chunk: Buffer) => void chunks.push(chunk);
  const work = stage.kubectl.must(["logs", "-f", "stand-in", "-c", `steady-${LINES}`], { onStdout });
  const { seconds } = await whileCut(stage, LASTING, work, () => text().split("\n").length / LINES);
  const wanted = Array.from({ length: LINES }, (_, i) => `line ${i + 1}\n`).join("");
  expect(text() === wanted, `${LINES} lines in order`, text());
  return { printed: `line 1 … line ${LINES}`, seconds };
}

async function portForward(stage: Stage): Promise<Seen> {
  const { world, kubectl, signal } = stage;
  const check = new PayloadCheck();
  const { result, way } = await spoken(stage, "portforward", "WebSocket", async (env) => {
    await using forward = kubectl.start(["port-forward", "pod/stand-in", `:${PORTS.http}`], env);
    const port = /:(\d+) ->/.exec(await forward.waitForLog(/Forwarding from 127\.0\.0\.1:\d+/))?.[1];
    const url = `http://127.0.0.1:${port}/bytes/${DOWNLOAD_BYTES}`;
    const onStdout = (chunk: Buffer) => check.take(chunk);
    const work = world.network.controlPlane.must(["curl", "-sS", url], { onStdout, signal });
    return await whileCut(stage, THREE, work, () => check.bytes / DOWNLOAD_BYTES);
  });
  check.expect(DOWNLOAD_BYTES, "the answer");
  return { printed: `${check.bytes} bytes as sent (${way})`, seconds: result.seconds };
}

async function serviceProxy(stage: Stage): Promise<Seen> {
  const check = new PayloadCheck();
  const path = `/api/v1/namespaces/default/services/http:web:http/proxy/bytes/${DOWNLOAD_BYTES}`;
  const work = stage.kubectl.must(["get", "--raw", path], { onStdout: (chunk) => check.take(chunk) });
  const { seconds } = await whileCut(stage, THREE, work, () => check.bytes / DOWNLOAD_BYTES);
  check.expect(DOWNLOAD_BYTES, "the answer");
  return { printed: `${check.bytes} bytes as sent`, seconds };
}
