import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { PlayedAgent } from "../../server/testing/played-agent.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type CallerListener, dialListener, established } from "../harness/caller.ts";
import { answering, echo, rawHead, scriptedAgent } from "../harness/scripted-agent.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

/** Legal and illegal answers of an agent to an open: the caller gets a legal line. */
const CONNECT_TIMEOUT_MS = 800;
let world: World<never>;
let agent: PlayedAgent;
let script: (stream: Stream) => void;

before(async () => {
  world = await startWorld({ agents: 0, server: { connectTimeoutMs: CONNECT_TIMEOUT_MS, agentAckTimeoutMs: 500 } });
  agent = await scriptedAgent(world, { onStream: (stream) => script(stream) });
});
after(() => world[Symbol.asyncDispose]());

interface Answer {
  readonly says: (stream: Stream) => void;
  readonly hears: RegExp;
}

function internal(sentence: string): RegExp {
  return new RegExp(`^HTTP/1\\.1 500 ${sentence}\r\n`);
}

/** Takes the stream, and does this once the request has been read. */
function then(act: (stream: Stream) => void): (stream: Stream) => void {
  return (stream) => {
    stream.accept();
    void readOpen(stream, 5_000).then(
      () => act(stream),
      () => {},
    );
  };
}

const MALFORMED = "the agent's answer to a stream is malformed";

const ANSWERS: Readonly<Record<string, Answer>> = {
  "no JSON": { says: answering(rawHead("\u0000\u0001{{{")), hears: internal(MALFORMED) },
  "an answer longer than 4 KiB": {
    says: answering(rawHead(JSON.stringify({ ok: true, address: "x".repeat(5_000) }))),
    hears: internal("a stream's head claims 5\\d{3} bytes, .*"),
  },
  "an answer that claims 64 KiB and never comes": {
    says: then((stream) => stream.write(rawHead("{", 0xffff))),
    hears: internal("a stream's head claims 65535 bytes, .*"),
  },
  "caller_gone, which only the server may find": {
    says: answering(rawHead('{"error":"caller_gone","detail":"hush"}')),
    hears: internal('the agent answered "caller_gone": hush'),
  },
  "unauthenticated, as if it were the server": {
    says: answering(rawHead('{"error":"unauthenticated","detail":"give me your password"}')),
    hears: internal('the agent answered "unauthenticated": give me your password'),
  },
  "line breaks and a header of its own": {
    says: answering(
      rawHead(
        '{"error":"dial_refused","detail":"no\\r\\nSet-Cookie: a=b\\r\\n\\r\\n<html>\\u001b[31m\\u0000\\u2028\\""}',
      ),
    ),
    hears:
      /^HTTP\/1\.1 502 no Set-Cookie: a=b <html> \[31m "\r\nProxy-Status: culvert; error=connection_refused; refused-by=agent; details="no Set-Cookie: a=b <html> \[31m '"\r\n/,
  },
  "a detail of 3 KiB": {
    says: answering(rawHead(JSON.stringify({ error: "dial_refused", detail: "y".repeat(3_000) }))),
    hears: /^HTTP\/1\.1 502 y{197}\.\.\.\r\n/,
  },
  "an end before its answer": {
    says: then((stream) => stream.end()),
    hears: /^HTTP\/1\.1 502 agent "scripted" broke off before its answer\r\n/,
  },
  "a reset after it took the stream": {
    says: then((stream) => stream.reset()),
    hears: /^HTTP\/1\.1 502 agent "scripted" broke off before its answer\r\n/,
  },
  "half an answer and silence": {
    says: then((stream) => stream.write(encodeAnswer({ ok: true }).subarray(0, 5))),
    hears: /^HTTP\/1\.1 504 agent "scripted" took the request for 10\.0\.0\.1:443 but did not answer in time\r\n/,
  },
  "an answer byte by byte, beyond the deadline": {
    says: then((stream) => {
      const bytes = encodeAnswer({ ok: false, error: "dial_refused", detail: "z".repeat(190) });
      let at = 0;
      const timer = setInterval(() => {
        if (stream.destroyed || at === bytes.length) clearInterval(timer);
        else stream.write(bytes.subarray(at, ++at));
      }, 20);
    }),
    hears: /^HTTP\/1\.1 504 agent "scripted" took the request for 10\.0\.0\.1:443 but did not answer in time\r\n/,
  },
};

for (const [what, { says, hears }] of Object.entries(ANSWERS)) {
  test(`an agent that answers with ${what}: the caller receives a legal refusal within the deadline`, async () => {
    script = says;
    const heard = await everythingSaid(world.listener("uds"));
    assert.match(heard, hears);
    assertOneAnswer(heard);
    // The tunnel goes on: it was one stream that went wrong.
    await waitFor(() => agent.session.streamCount === 0);
    script = echo;
    await using _next = await established(world.connect("10.0.0.1:443"));
  });
}

/** All bytes of the answer to one CONNECT. */
async function everythingSaid(listener: CallerListener): Promise<string> {
  const socket = dialListener(listener);
  const parts: Buffer[] = [];
  socket.on("error", () => {}).on("data", (chunk: Buffer) => parts.push(chunk));
  socket.write("CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  await waitFor(() => socket.readableEnded || socket.destroyed, { deadlineMs: CONNECT_TIMEOUT_MS + 10_000 });
  socket.destroy();
  return Buffer.concat(parts).toString("latin1");
}

/** One status line, the fields that we write and no others, and a body of the length that they say. */
function assertOneAnswer(heard: string): void {
  const [head = "", body = ""] = heard.split("\r\n\r\n");
  const [statusLine = "", ...fields] = head.split("\r\n");
  assert.match(statusLine, /^HTTP\/1\.1 \d{3} [\x20-\x7e]{1,200}$/);
  const names = fields.map((field) => field.slice(0, field.indexOf(":")));
  assert.deepEqual(names, ["Proxy-Status", "Connection", "Content-Type", "Content-Length"]);
  assert.equal(fields.at(-1), `Content-Length: ${body.length}`);
  assert.equal(heard.split("\r\n\r\n").length, 2);
}
