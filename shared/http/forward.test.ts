import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer, type Server } from "node:net";
import { buffer } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { forward, wholeUrl } from "./forward.ts";

async function portOf(server: Server, t: TestContext): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** Passes one request on to a target that gives this answer; returns the request and the answer, byte by byte. */
async function passOn(t: TestContext, request: string, answer: string) {
  let asked = "";
  const target = createTcpServer((socket) => {
    socket
      .on("error", () => {})
      .on("data", (chunk) => {
        asked += chunk.toString("latin1");
        if (/\r\n\r\n/.test(asked) && !socket.writableEnded) socket.end(Buffer.from(answer, "latin1"));
      });
  });
  const port = await portOf(target, t);
  const proxy = createServer((incoming, response) => {
    const { path, authority } = wholeUrl(incoming.url ?? "") ?? { path: "", authority: "" };
    const connection = connect(port, "127.0.0.1").on("error", () => {});
    response.shouldKeepAlive = false;
    forward(incoming, response, {
      ...{ connection, path, authority, reset: () => connection.destroy() },
      refuse: (sentence) => {
        if (!response.headersSent) response.writeHead(502).end(sentence);
      },
    });
  });
  const client = connect(await portOf(proxy, t), "127.0.0.1");
  client.write(Buffer.from(request, "latin1"));
  return { answer: (await buffer(client)).toString("latin1"), asked };
}

const GET = "GET http://target/ HTTP/1.1\r\nHost: target\r\n\r\n";

test("an answer that HTTP does not have is refused", async (t) => {
  for (const [answer, sentence] of [
    ["HTTP/1.1 042 x\r\nContent-Length: 0\r\n\r\n", /the target has answered with 42, which is no status/],
    ["HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello", /changed to another protocol/],
    ["HTTP/1.1 200 x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", /a transfer coding other than chunked/],
    ["HTTP/1.1 200 x\r\nX-A: \u0001\r\n\r\n", /the target ended the connection/],
  ] as const) {
    const passed = await passOn(t, GET, answer);
    assert.match(passed.answer, /^HTTP\/1\.1 502 /);
    assert.match(passed.answer, sentence);
  }
});

test("Trailer beside a length, or in an answer without a body, is not passed on", async (t) => {
  const post = "POST http://target/ HTTP/1.1\r\nHost: target\r\nTrailer: X\r\nContent-Length: 2\r\n\r\nhi";
  for (const [request, answer] of [
    [post, "HTTP/1.1 200 x\r\nTrailer: X\r\nContent-Length: 2\r\n\r\nok"],
    [GET, "HTTP/1.1 304 x\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n"],
    [GET.replace("1.1", "1.0"), "HTTP/1.1 200 x\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
  ] as const) {
    const passed = await passOn(t, request, answer);
    assert.equal(passed.answer.slice(0, 12), answer.slice(0, 12));
    assert.doesNotMatch(passed.answer + passed.asked, /trailer/i);
  }
});

test("bytes beyond ASCII in a field are passed on as they are, both ways", async (t) => {
  const name = "name: \xc3\xbc\xff";
  const request = `POST http://target/ HTTP/1.1\r\nHost: target\r\n${name}\r\nContent-Length: 2\r\n\r\nhi`;
  const passed = await passOn(t, request, `HTTP/1.1 200 x\r\n${name}\r\nContent-Length: 2\r\n\r\nok`);
  assert.ok(passed.asked.includes(`\r\n${name}\r\n`));
  assert.ok(passed.answer.includes(`\r\n${name}\r\n`));
});
