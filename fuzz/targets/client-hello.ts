import assert from "node:assert/strict";
import { canonicalServerName } from "../../shared/address/server-name.ts";
import { type ClientHello, ClientHelloReader, MAX_CLIENT_HELLO } from "../../shared/listen/client-hello.ts";
import { extension, helloFor, helloMessage, inRecords } from "../../shared/listen/testing/client-hello.ts";
import { assertPrintable, splits, type Target } from "../target.ts";

/** The reader of the name in a ClientHello. */
export const clientHello: Target = {
  name: "client-hello",
  maxLength: MAX_CLIENT_HELLO + 64,
  seeds: [
    helloFor("blue.example"),
    helloFor(undefined),
    inRecords(helloMessage({ names: ["blue.example"], extensions: [extension(16, Buffer.from("\0\x03\x02h2"))] }), 40),
    inRecords(helloMessage({ names: ["blue.example", "green.example"] })),
    inRecords(helloMessage({ names: ["münchen.example"] })),
    inRecords(helloMessage({ names: ["10.0.0.1"], nameType: 1 })),
    inRecords(Buffer.concat([Buffer.from([1, 0, 0, 41, 3, 3]), Buffer.alloc(32), Buffer.from([0, 0, 2, 0, 47, 1, 0])])),
  ],
  words: [
    helloFor("a"),
    Buffer.from([22, 3, 1]),
    extension(0, Buffer.from("\0\x04\0\0\x01a")),
    "example",
    "xn--",
    "\0",
  ],
  run(input) {
    const [together, apart] = splits(input);
    const whole = read(together);
    assert.deepEqual(read(apart), whole);
    if (whole === undefined) {
      assert.ok(input.length < MAX_CLIENT_HELLO, "this number of bytes is enough to decide");
      return "more";
    }
    if (whole.problem !== undefined) {
      assertPrintable(whole.problem, 200);
      return whole.problem.replace(/\d+/g, "n");
    }
    const { serverName } = whole;
    assert.equal(nameByTheBook(input)?.toLowerCase().replace(/\.$/, ""), rawName(input, serverName));
    if (serverName === undefined) return "no name";
    assert.deepEqual(canonicalServerName(serverName), { name: serverName });
    assert.deepEqual(read([helloFor(serverName)]), whole);
    return "a name";
  },
};

/** The answer does not change any more once it is there. */
function read(pieces: readonly Buffer[]): ClientHello | undefined {
  const reader = new ClientHelloReader();
  let answer: ClientHello | undefined;
  for (const piece of pieces) {
    const next = reader.push(piece);
    if (answer !== undefined) assert.deepEqual(next, answer);
    answer = next;
  }
  return answer;
}

/** Names beyond ASCII are compared by what the reader made of them. */
function rawName(input: Buffer, serverName: string | undefined): string | undefined {
  const name = nameByTheBook(input)?.toLowerCase().replace(/\.$/, "");
  return name === undefined || /^[\x20-\x7e]*$/.test(name) ? serverName : name;
}

/** A second reading (RFC 8446 §4.1.2, RFC 6066 §3), which throws at anything that is not as written there. */
function nameByTheBook(input: Buffer): string | undefined {
  const fragments: Buffer[] = [];
  let length = Number.POSITIVE_INFINITY;
  let at = 0;
  for (let have = 0; have < length + 4; have += fragments.at(-1)?.length ?? 0) {
    assert.deepEqual([...input.subarray(at, at + 2)], [22, 3], "a handshake record");
    const end = at + 5 + input.readUInt16BE(at + 3);
    fragments.push(input.subarray(at + 5, end));
    at = end;
    const start = Buffer.concat(fragments);
    if (start.length >= 4) length = start.readUIntBE(1, 3);
    assert.ok(end <= input.length || start.length >= length + 4, "the record is there, or all of it that is needed");
  }
  const body = Buffer.concat(fragments).subarray(4, 4 + length);
  assert.equal(body.length, length, "the message is there to its end");
  let left: Buffer = body.subarray(2 + 32); // behind version and random
  for (const width of [1, 2, 1]) left = vector(left, width).behind;
  if (left.length === 0) return undefined;
  const { content, behind } = vector(left, 2);
  assert.equal(behind.length, 0, "nothing follows the extensions");
  for (let extensions = content; extensions.length > 0; ) {
    const { content: inside, behind: next } = vector(extensions.subarray(2), 2);
    if (extensions.readUInt16BE(0) === 0) {
      const { content: list, behind: none } = vector(inside, 2);
      const { content: name, behind: second } = vector(list.subarray(1), 2);
      assert.deepEqual([list[0], none.length, second.length], [0, 0, 0], "one name and nothing else");
      return name.toString("utf8");
    }
    extensions = next;
  }
  return undefined;
}

function vector(bytes: Buffer, width: number): { readonly content: Buffer; readonly behind: Buffer } {
  const end = width + bytes.readUIntBE(0, width);
  assert.ok(end <= bytes.length, "a vector ends where it says");
  return { content: bytes.subarray(width, end), behind: bytes.subarray(end) };
}
