import assert from "node:assert/strict";
import { connectByNode } from "../../server/listeners/testing/connect-by-node.ts";
import { parseUsualConnect } from "../../server/listeners/usual-connect.ts";
import type { Target } from "../target.ts";

const SEEDS = [
  "CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
  "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: Go-http-client/1.1\r\n\r\n",
  "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Bearer a.b-c==\r\nTraceparent: 00-0af7-b7ad-01\r\n\r\n",
];
const FIELDS = ["Host: a\r\n", "User-Agent: b\r\n", "Proxy-Authorization: Basic c\r\n", "traceparent: d\r\n"];

/** The header of a usual CONNECT, which our own parser and Node's have to understand in the same way. */
export const usualConnect: Target = {
  name: "usual-connect",
  maxLength: 1_100,
  seeds: SEEDS.map((text) => Buffer.from(text, "latin1")),
  words: [
    ...FIELDS,
    "CONNECT ",
    " HTTP/1.1\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\t",
    "content-length: 1\r\n",
    "x".repeat(500),
  ],
  run(input) {
    const own = parseUsualConnect(input);
    if (own === undefined) return "left to Node's parser";
    assert.deepEqual(own, connectByNode(input));
    return `read, ${own.rawHeaders.length / 2} fields`;
  },
};
