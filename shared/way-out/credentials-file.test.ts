import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { CredentialsFile } from "./credentials-file.ts";
import { WayFault } from "./fault.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-credentials-"));
after(() => rmSync(folder, { recursive: true }));
const path = join(folder, "proxy");
const file = new CredentialsFile(path);

const ROWS: readonly [content: string, user: string, password: string][] = [
  ["anna:secret", "anna", "secret"],
  ["anna:secret\n", "anna", "secret"],
  ["anna:secret\r\n", "anna", "secret"],
  ["\uFEFFanna:secret", "anna", "secret"],
  ["anna:a:b:", "anna", "a:b:"],
  ["corp\\anna: wörd %41 ", "corp\\anna", " wörd %41 "],
  ["anna:", "anna", ""],
];

for (const [content, user, password] of ROWS) {
  test(`${JSON.stringify(content)} is a user and a password`, () => {
    writeFileSync(path, content);
    assert.deepEqual(file.read(), { user, password });
  });
}

test("the file is read each time", () => {
  writeFileSync(path, "anna:old");
  assert.equal(file.read().password, "old");
  writeFileSync(path, "anna:new");
  assert.equal(file.read().password, "new");
});

const REFUSED: readonly [content: string, sentence: RegExp][] = [
  ["", /is empty/],
  ["\n", /is empty/],
  ["secret", /has no colon/],
  ["anna:secret\nbert:secret\n", /more than one line/],
  ["anna:secret\n\n", /more than one line/],
];

for (const [content, sentence] of REFUSED) {
  test(`${JSON.stringify(content)} is refused, naming option and file and nothing in it`, () => {
    writeFileSync(path, content);
    assert.throws(() => file.read(), refusal(sentence));
  });
}

test("a file that is not there is refused with a sentence", () => {
  rmSync(path, { force: true });
  assert.throws(() => file.read(), refusal(/cannot be read: there is no such file$/));
});

function refusal(sentence: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof WayFault);
    assert.equal(error.fault, "proxy_auth_required");
    assert.match(error.message, sentence);
    assert.ok(error.message.startsWith(`--proxy-credentials-file ${path} `));
    assert.ok(!/secret|anna/.test(error.message));
    return true;
  };
}
