import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { CredentialsFile } from "./credentials-file.ts";
import { RouteFault } from "./proxy-route.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-credentials-"));
after(() => rmSync(folder, { recursive: true }));
const path = join(folder, "proxy");
const file = new CredentialsFile(path);

const ROWS: readonly [content: string, user: string, password: string][] = [
  ["anna:secret", "anna", "secret"],
  ["anna:secret\n", "anna", "secret"],
  ["anna:secret\r\n", "anna", "secret"],
  ["\uFEFFanna:secret", "anna", "secret"],
  ["anna:\uFFFD", "anna", "\uFFFD"],
  ["anna:a:b:", "anna", "a:b:"],
  ["corp\\anna: wörd %41 ", "corp\\anna", " wörd %41 "],
  ["anna:", "anna", ""],
];

for (const [content, user, password] of ROWS) {
  test(`${JSON.stringify(content)} is a user and a password`, async () => {
    writeFileSync(path, content);
    assert.deepEqual(await read(), { user, password });
  });
}

test("the file is read each time", async () => {
  writeFileSync(path, "anna:old");
  assert.equal((await read()).password, "old");
  writeFileSync(path, "anna:new");
  assert.equal((await read()).password, "new");
});

const REFUSED: readonly [content: string | Buffer, sentence: RegExp][] = [
  ["", /is empty/],
  ["\n", /is empty/],
  ["secret", /has no colon/],
  ["anna:secret\nbert:secret\n", /more than one line/],
  ["anna:secret\n\n", /more than one line/],
  [`anna:secret${"t".repeat(4096)}`, /is larger than 4 KiB/],
  [Buffer.from("anna:secr\xe9t", "latin1"), /is not UTF-8/],
  [Buffer.from("\uFEFFanna:secret\r\n", "utf16le"), /is not UTF-8/],
  [Buffer.from("anna:secret\r\n", "utf16le"), /holds a control character: .* as UTF-8/],
  ["anna:secret\0", /holds a control character/],
  ["an\tna:secret", /holds a control character/],
  ["anna:secret\x7f\n", /holds a control character/],
];

for (const [content, sentence] of REFUSED) {
  test(`${JSON.stringify(content.toString("latin1").slice(0, 20))} is refused, naming option and file and nothing in it`, async () => {
    writeFileSync(path, content);
    await assert.rejects(read(), refusal(sentence));
  });
}

test("a file that is not there is refused with a sentence", async () => {
  rmSync(path, { force: true });
  await assert.rejects(read(), refusal(/cannot be read: there is no such file$/));
});

test("a pipe is refused and not waited for", async () => {
  execFileSync("mkfifo", [path]);
  await assert.rejects(read(), refusal(/cannot be read: it is a pipe, a socket or a device, not a regular file$/));
});

function read(): Promise<ProxyCredentials> {
  return file.read(AbortSignal.timeout(30_000));
}

function refusal(sentence: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof RouteFault);
    assert.equal(error.fault, "proxy_auth_required");
    assert.match(error.message, sentence);
    assert.ok(error.message.startsWith(`--proxy-credentials-file ${path} `));
    assert.ok(!/secret|anna/.test(error.message));
    return true;
  };
}
