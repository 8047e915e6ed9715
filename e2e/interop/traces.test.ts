import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { established } from "../harness/caller.ts";
import { captureLog } from "../harness/log-lines.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { freePort } from "../harness/targets/absent.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";
import { goMissing, goPeerBinary } from "./go-peer.ts";

const skip = goMissing ?? false;
const ALL = { traceSamplingRatePerMillion: 1_000_000 };
const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER = { traceparent: `00-${TRACE}-00f067aa0ba902b7-01` };

interface Span {
  readonly service: string;
  readonly instance: string;
  readonly name: string;
  readonly kind: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string;
  readonly start: number;
  readonly end: number;
  readonly status: string;
  readonly message: string;
  readonly attributes: Readonly<Record<string, unknown>>;
}

/** OpenTelemetry's own types in Go read what arrives. */
class Receiver implements Disposable {
  readonly spans: Span[] = [];
  readonly endpoint: string;
  readonly #end: () => void;

  static async start(): Promise<Receiver> {
    const child = spawn(await goPeerBinary("go-otlp"), { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface(child.stdout);
    const [port] = (await once(lines, "line")) as [string];
    const receiver = new Receiver(`http://127.0.0.1:${port}`, () => child.stdin.end());
    lines.on("line", (line) => receiver.spans.push(JSON.parse(line)));
    return receiver;
  }

  constructor(endpoint: string, end: () => void) {
    this.endpoint = endpoint;
    this.#end = end;
  }

  /** The spans of the trace that has this many. */
  async trace(count: number, traceId?: string): Promise<Span[]> {
    return await waitFor(() => {
      const own = this.spans.filter((span) => traceId === undefined || span.traceId === traceId);
      return own.length >= count ? own : undefined;
    });
  }

  [Symbol.dispose](): void {
    this.#end();
  }
}

/** `name of the service: span < its parent`, in order of their beginnings. */
function tree(spans: readonly Span[]): string[] {
  const byId = new Map(spans.map((span) => [span.spanId, span.name]));
  return spans
    .toSorted((a, b) => a.start - b.start || a.end - b.end)
    .map(({ service, name, parentId }) => `${service}: ${name} < ${byId.get(parentId) ?? "caller"}`)
    .toSorted();
}

/** A CONNECT with this field. */
const withTraceparent = (target: string, traceparent: string) => ({
  request: `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\nTraceparent: ${traceparent}\r\n\r\n`,
});

const SERVERS = ["CONNECT < caller", "authenticate < CONNECT", "open < CONNECT", "pick < CONNECT"];
const AGENTS = [
  ...["dial < dial for the server", "dial for the server < CONNECT", "policy < dial for the server"],
  "resolve < dial for the server",
];
const by = (service: string, spans: readonly string[]) => spans.map((span) => `${service}: ${span}`);

test("a CONNECT with a traceparent is one trace of server and agent", { skip }, async () => {
  using receiver = await Receiver.start();
  const traced = { otlpEndpoint: receiver.endpoint, traceSamplingRatePerMillion: 0 };
  await using world = await startWorld({ targets: ["echo"], server: traced, agent: traced });
  const target = `localhost:${world.targets.echo.port}`;
  await using _traced = await established(world.connect(target, withTraceparent(target, CALLER.traceparent)));
  await using _untraced = await established(world.connect(target)); // a ratio of 0 begins no trace
  const spans = await receiver.trace(8);
  assert.deepEqual(tree(spans), [...by("culvert-agent", AGENTS), ...by("culvert-server", SERVERS)]);
  assert.deepEqual(new Set(spans.map(({ traceId }) => traceId)), new Set([TRACE]));
  const root = spans.find(({ name }) => name === "CONNECT") ?? assert.fail("no CONNECT");
  assert.equal(root.parentId, "00f067aa0ba902b7");
  assert.equal(root.kind, "SPAN_KIND_SERVER");
  assert.equal(root.instance, "world");
  for (const span of spans.filter(({ service }) => service === "culvert-server")) {
    assert.ok(span.start >= root.start && span.end <= root.end && span.start <= span.end, `${span.name} is inside`);
  }
  const { "culvert.connection": id, ...attributes } = root.attributes;
  assert.ok(id);
  assert.deepEqual(attributes, {
    "http.request.method": "CONNECT",
    "http.response.status_code": 200,
    "server.address": "localhost",
    "server.port": world.targets.echo.port,
    "culvert.cluster": "default",
    "culvert.caller": "unix",
    "culvert.agent": "agent-1",
  });
});

test("where the agent makes no spans, the server makes them of the times in its answer", { skip }, async () => {
  using receiver = await Receiver.start();
  await using world = await startWorld({ targets: ["echo"], server: { otlpEndpoint: receiver.endpoint, ...ALL } });
  await using _connection = await established(world.connect("echo"));
  const spans = await receiver.trace(8);
  assert.deepEqual(tree(spans), by("culvert-server", [...SERVERS, ...AGENTS].sort()));
  const [root, dialled] = ["CONNECT", "dial for the server"].map((wanted) => spans.find(({ name }) => name === wanted));
  assert.ok(root && dialled && dialled.start >= root.start && dialled.end <= root.end);
});

test("a CONNECT that is refused is a span with its outcome, and ends with the step that has failed", {
  skip,
}, async () => {
  using receiver = await Receiver.start();
  const traced = { otlpEndpoint: receiver.endpoint, ...ALL };
  await using world = await startWorld({ server: traced, agent: traced });
  const absent = `127.0.0.1:${await freePort()}`;
  await using refused = await world.connect(absent);
  assert.equal(refused.status, 502);
  const spans = await receiver.trace(7);
  const errors = Object.fromEntries(spans.map(({ name, attributes }) => [name, attributes["error.type"]]));
  assert.deepEqual(errors, {
    CONNECT: "dial_refused",
    authenticate: undefined,
    pick: undefined,
    open: "dial_refused",
    "dial for the server": "dial_refused",
    resolve: undefined,
    policy: undefined,
    dial: undefined,
  });
  const root = spans.find(({ name }) => name === "CONNECT");
  assert.equal(root?.status, "STATUS_CODE_ERROR");
  assert.match(root?.message ?? "", /refused the connection/);
});

test("a CONNECT over HTTP/2 goes on with the trace of its caller, too", { skip }, async () => {
  using receiver = await Receiver.start();
  const traced = { otlpEndpoint: receiver.endpoint, traceSamplingRatePerMillion: 0 };
  await using world = await startWorld({ targets: ["echo"], server: traced });
  const { uds = "" } = world.server.addresses;
  const session = connectHttp2("http://localhost", { createConnection: () => connect(uds) });
  const stream = session.request({ ":method": "CONNECT", ":authority": world.targets.echo.address, ...CALLER });
  assert.equal((await once(stream, "response"))[0][":status"], 200);
  const spans = await receiver.trace(8, TRACE);
  assert.equal(spans.find(({ name }) => name === "CONNECT")?.parentId, "00f067aa0ba902b7");
  session.destroy();
});

test("a traceparent that is malformed is none, and refuses nothing", { skip }, async () => {
  using receiver = await Receiver.start();
  await using world = await startWorld({ targets: ["echo"], server: { otlpEndpoint: receiver.endpoint, ...ALL } });
  const { address } = world.targets.echo;
  for (const traceparent of ["00-0-0-01", `00-${"0".repeat(32)}-${"1".repeat(16)}-01`, "x".repeat(2_000)]) {
    await using _connection = await established(world.connect(address, withTraceparent(address, traceparent)));
  }
  const spans = await receiver.trace(24);
  const roots = spans.filter(({ name }) => name === "CONNECT");
  assert.deepEqual(
    roots.map(({ parentId }) => parentId),
    ["", "", ""],
  );
});

test("a receiver that is gone costs its spans, which are counted, and nothing else", async () => {
  const otlpEndpoint = `http://127.0.0.1:${await freePort()}`;
  const { log, lines } = captureLog();
  await using world = await startWorld({ targets: ["echo"], server: { otlpEndpoint, ...ALL }, log });
  for (let i = 0; i < 20; i++) {
    await using _connection = await established(world.connect("echo"));
  }
  const lost = async () =>
    (await scrapeRegistry(world.server.metrics.registry)).value("culvert_server_spans_lost_total");
  await waitFor(async () => ((await lost()) ?? 0) >= 160);
  assert.equal(lines.filter(({ msg }) => String(msg).startsWith("spans are lost")).length, 1);
});
