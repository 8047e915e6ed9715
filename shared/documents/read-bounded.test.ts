import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { BoundedFile, readBounded, readBoundedSync, readFailure } from "./read-bounded.ts";
import { hugeFileAt, pipeAt } from "./testing/files.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-bounded-"));
after(() => rmSync(folder, { recursive: true }));
const at = (name: string): string => join(folder, name);

const READERS = {
  readBoundedSync: async (path: string, maxBytes?: number) => readBoundedSync(path, maxBytes),
  readBounded,
} as const;

/** The text that was read, or the reason why none was. */
async function outcome(read: (typeof READERS)["readBounded"], path: string, maxBytes?: number): Promise<string> {
  try {
    return String(await read(path, maxBytes));
  } catch (error) {
    return `refused: ${readFailure(error)}`;
  }
}

for (const [name, read] of Object.entries(READERS)) {
  test(`${name}: a file is read up to its limit, also through the links of a Kubernetes volume`, async () => {
    const path = at(`${name}-file`);
    for (const content of ["", "one", "four"]) {
      writeFileSync(path, content);
      assert.equal(await outcome(read, path, 4), content);
    }
    writeFileSync(path, "five.");
    assert.match(await outcome(read, path, 4), /^refused: it is larger than /);
    const volume = at(`${name}-volume`);
    mkdirSync(join(volume, "..1"), { recursive: true });
    writeFileSync(join(volume, "..1", "tls.crt"), "content");
    symlinkSync("..1", join(volume, "..data"));
    symlinkSync("..data/tls.crt", join(volume, "tls.crt"));
    assert.equal(await outcome(read, join(volume, "tls.crt")), "content");
  });

  test(`${name}: a pipe, a device, a socket, a directory and a file that is too large are refused at once`, async () => {
    const special = /^refused: it is a pipe, a socket or a device, not a regular file$/;
    using _pipe = pipeAt(at(`${name}-pipe`));
    const socket = createServer().listen(at(`${name}-socket`));
    await new Promise((resolve) => socket.once("listening", resolve));
    after(() => socket.close());
    hugeFileAt(at(`${name}-huge`));
    for (const [path, refusal] of [
      [at(`${name}-pipe`), special],
      [at(`${name}-socket`), special],
      ["/dev/zero", special],
      [folder, /^refused: it is a directory$/],
      [at("missing"), /^refused: there is no such file$/],
      [at(`${name}-huge`), /^refused: it is larger than 4 MiB$/],
    ] as const) {
      assert.match(await outcome(read, path), refusal, path);
    }
  });

  test(`${name}: a file of /proc, which says that it is empty, is read, and no more of it than its limit`, async () => {
    assert.match(await outcome(read, "/proc/self/status"), /^Name:/);
    assert.match(await outcome(read, "/proc/self/status", 64), /^refused: it is larger than/);
  });

  test(`${name}: an empty file takes a small buffer, and a larger one of /proc is read whole`, async (t) => {
    const path = at(`${name}-empty`);
    writeFileSync(path, "");
    const alloc = t.mock.method(Buffer, "alloc");
    assert.equal(await outcome(read, path), "");
    const bytes = alloc.mock.calls.reduce((sum, { arguments: [size] }) => sum + size, 0);
    assert.ok(bytes <= 8_192, `${bytes} bytes`);
    const text = await outcome(read, "/proc/self/smaps");
    assert.ok(text.length > 50_000, `${text.length} bytes`);
    assert.match(text, /^[\da-f]+-[\da-f]+ [\s\S]*\nVmFlags: [^\n]*\n$/);
  });
}

test("a file is read as it is each time, and refused when it is too large", async () => {
  const file = new BoundedFile(at("shared"), 4);
  for (const content of ["", "four"]) {
    writeFileSync(at("shared"), content);
    assert.equal(String(await file.read(never())), content);
  }
  writeFileSync(at("shared"), "longer than that");
  await assert.rejects(file.read(never()), { name: "FileTooLargeError" });
});

test("a disk that does not answer keeps nobody beyond their time, and is asked once", async () => {
  let loads = 0;
  let answer = (_content: Buffer): void => assert.fail("nothing was asked");
  const file = new BoundedFile(at("shared"), 4, () => {
    loads++;
    return new Promise((resolve) => {
      answer = resolve;
    });
  });
  for (let attempt = 0; attempt < 10; attempt++) {
    const abort = new AbortController();
    const reading = file.read(abort.signal);
    abort.abort(new Error("its time is over"));
    await assert.rejects(reading, /its time is over/);
  }
  const reading = file.read(never());
  answer(Buffer.from("late"));
  assert.equal(String(await reading), "late");
  assert.equal(loads, 1);
  void file.read(never());
  assert.equal(loads, 2);
});

function never(): AbortSignal {
  return new AbortController().signal;
}
