import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { connect } from "node:tls";
import fc from "fast-check";
import { type ClientHello, ClientHelloReader, MAX_CLIENT_HELLO, UNRECOGNIZED_NAME_ALERT } from "./client-hello.ts";
import { extension, type HelloParts, helloFor, helloMessage, inRecords, nodeHello } from "./testing/client-hello.ts";

const RUNS = process.env["CI"] === "true" ? 2_000 : 200;

/** The answer to these bytes in one piece. */
function read(...pieces: Buffer[]): ClientHello | undefined {
  const reader = new ClientHelloReader();
  let hello: ClientHello | undefined;
  for (const piece of pieces) hello = reader.push(piece);
  return hello;
}

function readParts(parts: HelloParts): ClientHello | undefined {
  return read(inRecords(helloMessage(parts)));
}

/** The bytes in segments that end at these places. */
function split(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...places.map((place) => place % bytes.length), bytes.length].sort((a, b) => a - b);
  return ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end));
}

test("the hellos of Node, TLS 1.2 and 1.3, are read in one piece and byte by byte, and none before its last byte", async () => {
  for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
    for (const servername of ["blue.example.com", undefined]) {
      const bytes = await nodeHello({ minVersion: version, maxVersion: version, ...(servername && { servername }) });
      const expected = { problem: undefined, serverName: servername };
      assert.deepEqual(read(bytes), expected);
      const reader = new ClientHelloReader();
      for (const [at] of bytes.entries()) {
        const hello = reader.push(bytes.subarray(at, at + 1));
        assert.deepEqual(hello, at === bytes.length - 1 ? expected : undefined, `byte ${at} of ${bytes.length}`);
      }
    }
  }
});

const openssl = spawnSync("openssl", ["version"]).status === 0;
test("the hellos of openssl s_client are read", { skip: !openssl && "there is no openssl" }, async () => {
  for (const [version, name] of [
    ["-tls1_2", "blue.example.com"],
    ["-tls1_3", "blue.example.com"],
    ["-tls1_3", undefined],
  ] as const) {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const naming = name === undefined ? ["-noservername"] : ["-servername", name];
    const at = ["-connect", `127.0.0.1:${(server.address() as AddressInfo).port}`];
    const client = spawn("openssl", ["s_client", version, ...naming, ...at], { stdio: "ignore" });
    const [socket] = await once(server, "connection");
    const [bytes] = await once(socket, "data");
    assert.deepEqual(read(bytes), { problem: undefined, serverName: name });
    socket.destroy();
    server.close();
    if (client.exitCode === null) await once(client, "exit");
  }
});

test("every split of a real hello into segments and records gives the same answer", async () => {
  const real = await nodeHello({ servername: "Blue.Example.com." });
  const message = real.subarray(5);
  fc.assert(
    fc.property(
      fc.array(fc.nat(), { maxLength: 40 }),
      fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 41, max: 16_384 })),
      fc.uint8Array({ maxLength: 40 }),
      (places, recordSize, behind) => {
        const bytes = Buffer.concat([inRecords(message, recordSize), behind]);
        assert.deepEqual(read(...split(bytes, places)), { problem: undefined, serverName: "blue.example.com" });
      },
    ),
    { numRuns: RUNS },
  );
});

test("no bytes make it throw, and the answer does not depend on how they are cut", async () => {
  const real = await nodeHello({ servername: "blue.example.com" });
  const change = fc.tuple(fc.nat(), fc.nat(255));
  fc.assert(
    fc.property(
      fc.array(change, { maxLength: 6 }),
      fc.nat(),
      fc.array(fc.nat(), { maxLength: 10 }),
      fc.boolean(),
      (changes, cut, places, cutsEnd) => {
        const bytes = Buffer.from(real);
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        const shown = cutsEnd ? bytes.subarray(0, (cut % bytes.length) + 1) : bytes;
        assert.deepEqual(read(...split(shown, places)), read(shown));
      },
    ),
    { numRuns: RUNS * 5 },
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => void read(Buffer.from(bytes))));
});

test("names that are no names are refused, each in its own words", () => {
  for (const [names, problem] of [
    [[], "its list of server names is empty"],
    [[""], "its server name is empty"],
    [["blue.example", "green.example"], "it asks for two server names"],
    [["10.0.0.1"], "its server name is an IP address, and host names are compared"],
    [["blue.example\0.evil"], "its server name holds a NUL byte"],
    [["blue\r\nexample"], "its server name holds a control byte"],
    [[`${"a.".repeat(130)}example`], "its server name is 267 bytes long, and at most 253 are allowed"],
    [[`${"a".repeat(64)}.example`], "its server name has a label of 64 bytes, and at most 63 are allowed"],
    [[Buffer.from([0xff, 0xfe])], "its server name is neither ASCII nor UTF-8"],
    [["*.example"], "its server name is no host name: letters, digits, - and _ between dots"],
  ] as const) {
    assert.deepEqual(readParts({ names }), { problem });
  }
  assert.deepEqual(readParts({ names: ["blue.example"], nameType: 1 }), {
    problem: "its server name is of an unknown type",
  });
});

test("names of JavaScript's own are names like others", () => {
  for (const name of ["__proto__", "constructor", "tostring.example"]) {
    assert.deepEqual(readParts({ names: [name] }), { problem: undefined, serverName: name });
  }
});

test("a hello without server_name, or without extensions at all, names nobody", () => {
  assert.deepEqual(read(helloFor(undefined)), { problem: undefined, serverName: undefined });
  const bare = Buffer.concat([Buffer.from([1, 0, 0, 41, 3, 3]), Buffer.alloc(32), Buffer.from([0, 0, 2, 0, 47, 1, 0])]);
  assert.deepEqual(read(inRecords(bare)), { problem: undefined, serverName: undefined });
});

test("what a second reader could take for another name is refused", () => {
  const other = extension(0, Buffer.concat([Buffer.from([0, 16, 0, 0, 13]), Buffer.from("green.example")]));
  assert.deepEqual(readParts({ names: ["blue.example"], extensions: [other] }), {
    problem: "its ClientHello has the same extension twice",
  });
  for (const parts of [
    { names: ["blue.example"], trailer: Buffer.from([0]) },
    { extensions: [extension(0, Buffer.from([0, 3, 0, 0, 1]))] },
    { extensions: [extension(0, Buffer.from([0, 0, 1]))] },
    { extensions: [Buffer.from([0, 0, 0xff, 0xff])] },
  ]) {
    assert.deepEqual(readParts(parts), { problem: "its ClientHello is malformed" });
  }
});

test("what is no TLS is refused with its first bytes", () => {
  for (const bytes of [Buffer.from("G"), Buffer.from([22, 2]), Buffer.from([21]), Buffer.from([0x80])]) {
    assert.deepEqual(read(bytes), { problem: "it does not begin as TLS does" });
  }
  assert.deepEqual(read(inRecords(Buffer.from([2]))), {
    problem: "it begins with another TLS message than a ClientHello",
  });
  for (const length of [0, 16_385, 65_535]) {
    const header = Buffer.from([22, 3, 1, length >> 8, length & 255]);
    assert.deepEqual(read(header), { problem: "its ClientHello is malformed" });
  }
});

test("16 KiB in all are read, also in records of one byte, and not one more", () => {
  // A header for each record: what is left of the 16 KiB is for the message.
  for (const recordSize of [16_384, 1_000, 1]) {
    const fits = hello(recordSize, 0);
    assert.ok(fits.length <= MAX_CLIENT_HELLO && fits.length > MAX_CLIENT_HELLO - 6);
    assert.deepEqual(read(...bytewise(fits)), { problem: undefined, serverName: "blue.example" });
    const problem = "its ClientHello is longer than 16384 bytes";
    assert.deepEqual(read(...bytewise(hello(recordSize, 1))), { problem });
    assert.deepEqual(read(hello(recordSize, 1)), { problem });
  }

  function hello(recordSize: number, more: number): Buffer {
    let room = MAX_CLIENT_HELLO;
    while (room + 5 * Math.ceil(room / recordSize) > MAX_CLIENT_HELLO) room--;
    const least = helloMessage({ names: ["blue.example"], extensions: [extension(21, Buffer.alloc(0))] }).length;
    const padding = extension(21, Buffer.alloc(room - least + more));
    return inRecords(helloMessage({ names: ["blue.example"], extensions: [padding] }), recordSize);
  }
});

test("a length that is claimed is refused or waited for, and nothing is allocated for it", () => {
  assert.deepEqual(read(inRecords(Buffer.from([1, 0xff, 0xff, 0xff]))), {
    problem: "its ClientHello is longer than 16384 bytes",
  });
  const before = process.memoryUsage().arrayBuffers;
  const readers = Array.from({ length: 1_000 }, () => new ClientHelloReader());
  for (const reader of readers) assert.equal(reader.push(Buffer.from([22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f])), undefined);
  const perReader = (process.memoryUsage().arrayBuffers - before) / readers.length;
  assert.ok(perReader < 1_024, `${perReader} bytes for each`);
});

test("16 KiB in pieces of one byte cost no more than a few times what one piece costs for each byte", () => {
  // By the bytes that are copied, not by the clock: doubling copies each byte about once more.
  const bytes = inRecords(helloMessage({ extensions: [extension(21, Buffer.alloc(16_000))] }));
  const copy = Buffer.prototype.copy;
  let copied = 0;
  Buffer.prototype.copy = function (...args: Parameters<typeof copy>) {
    const count = copy.apply(this, args);
    copied += count;
    return count;
  };
  try {
    assert.deepEqual(read(...bytewise(bytes)), { problem: undefined, serverName: undefined });
  } finally {
    Buffer.prototype.copy = copy;
  }
  assert.ok(copied < 4 * bytes.length, `${copied} bytes were copied for ${bytes.length}`);
});

test("a client understands the alert", async () => {
  const [near, far] = duplexPair();
  const socket = connect({ socket: near, servername: "nobody.example" });
  far.once("data", () => far.end(UNRECOGNIZED_NAME_ALERT));
  const [error] = await once(socket, "error");
  assert.match(String(error), /unrecognized name/i);
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

function bytewise(bytes: Buffer): Buffer[] {
  return Array.from(bytes, (_, at) => bytes.subarray(at, at + 1));
}
