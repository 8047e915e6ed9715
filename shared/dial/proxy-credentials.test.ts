import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { ProxyCredentials } from "./auth/scheme.ts";
import { CredentialsFile, RefusedCredentials } from "./proxy-credentials.ts";
import { RouteFault, type RouteFaultCode } from "./proxy-route.ts";

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

const INVALID: readonly [content: string | Buffer, sentence: RegExp][] = [
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

for (const [content, sentence] of INVALID) {
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

const ANNA = { user: "anna", password: "wrong" };
const MINUTE = 60_000;
const REFUSED = "proxy_auth_refused";
const never = new AbortController().signal;

type Answer = "accepted" | "not asked again" | RouteFaultCode;

function setUp() {
  const clock = { now: 0 };
  const memory = new RefusedCredentials(() => clock.now);
  /** Makes an attempt whose proxy gives this answer. Resolves with the number of times that it got the credentials. */
  const login = async (proxy: string, answer: Answer, { credentials = ANNA, times = 1 } = {}): Promise<number> => {
    const attempt = memory.attempt(proxy, never);
    try {
      await attempt.begin(credentials, "file");
    } catch (error) {
      assert.ok(error instanceof RouteFault);
      attempt.end(error.fault);
      return 0;
    }
    let sent = 0;
    for (; sent < times && attempt.mayResend(); sent++) attempt.onSent();
    if (answer === "accepted" || answer === "not asked again") attempt.onAccepted(answer === "accepted");
    attempt.end(answer === "accepted" ? undefined : answer === "not asked again" ? "proxy_unavailable" : answer);
    return sent;
  };
  /** Makes attempts every minute. Resolves with the minutes in which credentials were sent. */
  const loginsUntil = async (end: number, attempts: () => Promise<number>): Promise<number[]> => {
    const at: number[] = [];
    for (; clock.now < end * MINUTE; clock.now += MINUTE) {
      const times = await attempts();
      at.push(...Array<number>(times).fill(clock.now / MINUTE));
    }
    return at;
  };
  return { clock, memory, login, loginsUntil };
}

const ANSWERS: readonly (readonly RouteFaultCode[])[] = [
  [REFUSED],
  ["timeout"],
  ["proxy_auth_unsupported"],
  [REFUSED, "timeout"],
  ["timeout", "proxy_closed", REFUSED],
  [REFUSED, REFUSED, "timeout"],
];

for (const proxies of ["a", "ab", "abcde"]) {
  test(`${proxies.length} proxies get a wrong password at most four times before half an hour without it`, async () => {
    for (const times of [[1], [2], [1, 4]]) {
      for (const answers of ANSWERS) {
        const { login, loginsUntil } = setUp();
        let turn = 0;
        const at = await loginsUntil(160, async () => {
          let sent = 0;
          for (const proxy of proxies) {
            const now = await login(proxy, answers[turn % answers.length] ?? REFUSED, {
              times: times[turn % times.length] ?? 1,
            });
            if (now > 0) turn++;
            sent += now;
          }
          return sent;
        });
        // A directory counts on until half an hour passes without a wrong password.
        for (const [index, first] of at.entries()) {
          const five = at.slice(index, index + 5);
          const hasPause = five.some((one, place) => one - (five[place - 1] ?? first) >= 30);
          assert.ok(hasPause || five.length < 5, `${five} of ${at}, ${answers} ${times}`);
        }
        assert.ok(at.length >= 6, `it is sent now and then: ${at}`);
      }
    }
  });
}

test("the wait doubles from 5 to 30 minutes; without an answer, the first two failures cost none", async () => {
  for (const [answer, times, expected] of [
    [REFUSED, 1, [0, 5, 15, 35, 65, 70]],
    ["timeout", 1, [0, 1, 2, 22, 52, 53]],
    ["proxy_auth_unsupported", 2, [0, 0, 1, 1, 31, 31]],
  ] as const) {
    const { login, loginsUntil } = setUp();
    const at = await loginsUntil(75, () => login("a", answer, { times }));
    assert.deepEqual(at.slice(0, 6), expected, answer);
  }
});

test("accepted credentials are sent at once after every fault but a refusal", async () => {
  const { login } = setUp();
  assert.ok(await login("a", "accepted"));
  for (let attempt = 0; attempt < 20; attempt++) {
    assert.equal(await login("a", "timeout", { times: 2 }), 2);
    assert.equal(await login("a", "proxy_closed"), 1);
  }
  assert.ok(await login("a", REFUSED));
  assert.ok(!(await login("a", "accepted")));
});

test("an answer that only does not ask for a login withdraws no refusal", async () => {
  const { clock, login } = setUp();
  assert.ok(await login("a", REFUSED));
  clock.now += 5 * MINUTE;
  assert.ok(await login("a", "not asked again"));
  assert.ok(await login("a", REFUSED));
  clock.now += 5 * MINUTE;
  assert.ok(!(await login("a", REFUSED)), "the second wait is longer");
});

test("an attempt that sent no credentials, or was accepted before it failed, costs no wait", async () => {
  const { memory, login } = setUp();
  for (let count = 0; count < 20; count++) {
    const unasked = memory.attempt("a", never);
    await unasked.begin(ANNA, "file");
    unasked.end("refused");
    assert.ok(await login("b", "not asked again"));
  }
  assert.ok(await login("a", "timeout"));
});

test("a proxy that accepts the credentials gets them whatever another one says, and an acceptance ends all waits", async () => {
  const { clock, login } = setUp();
  assert.ok(await login("a", REFUSED));
  assert.ok(await login("b", "accepted"));
  assert.ok(!(await login("a", "accepted")));
  assert.ok(await login("b", "accepted"));
  clock.now += 5 * MINUTE;
  assert.ok(await login("a", "accepted"));
  assert.ok(await login("a", REFUSED));
  clock.now += 5 * MINUTE;
  assert.ok(await login("a", REFUSED), "the first wait again");
});

test("another password, and another user, are other credentials", async () => {
  const { login } = setUp();
  await login("a", REFUSED);
  assert.ok(await login("a", REFUSED, { credentials: { user: "anna", password: "other" } }));
  assert.ok(await login("a", REFUSED, { credentials: { user: "an", password: "na:wrong" } }));
  assert.ok(!(await login("a", REFUSED)));
});

test("a fault says why the password is held back, until when, and how another one is sent sooner", async () => {
  const { clock, memory, login } = setUp();
  await login("e", "proxy_closed");
  for (const proxy of ["a", "b"]) await login(proxy, REFUSED);
  clock.now += 2 * MINUTE;
  const file =
    "to avoid an account lockout it is sent again in 18 min: a new one in --proxy-credentials-file is sent at once";
  const url =
    "to avoid an account lockout it is sent again in 18 min: after a restart a new one in the proxy's URL is sent at once";
  for (const [proxy, source, message] of [
    ["a", "file", `the proxy a refused the password 2 min ago; ${file}`],
    ["e", "file", `the proxy e did not accept the password 2 min ago (proxy_closed); ${file}`],
    ["d", "url", `the proxy d gets no password, because other proxies did not accept it 2 min ago; ${url}`],
  ] as const) {
    await assert.rejects(memory.attempt(proxy, never).begin(ANNA, source), { at: proxy, message });
  }
});

test("one attempt at a time sends credentials; an aborted one stops waiting and holds up nobody", async () => {
  const { memory } = setUp();
  const first = memory.attempt("a", never);
  await first.begin(ANNA, "file");
  const abort = new AbortController();
  const waiting = memory.attempt("a", abort.signal).begin(ANNA, "file");
  const third = memory.attempt("b", never);
  let hasBegun = false;
  const next = third.begin(ANNA, "file").then(() => {
    hasBegun = true;
  });
  abort.abort(new Error("no more time"));
  await assert.rejects(waiting, /no more time/);
  await new Promise(setImmediate);
  assert.equal(hasBegun, false);
  first.end("timeout");
  await next;
  third.end();
});

test("an attempt that ends while it waits never sends credentials", async () => {
  const { memory } = setUp();
  const first = memory.attempt("a", never);
  await first.begin(ANNA, "file");
  const gone = memory.attempt("a", never);
  const waiting = gone.begin(ANNA, "file");
  gone.end("timeout");
  first.end("timeout");
  await assert.rejects(waiting);
  const third = memory.attempt("a", never);
  await third.begin(ANNA, "file");
  third.end();
});

test("accepted credentials do not wait for an answer that does not come", async (t) => {
  const keepAlive = setInterval(() => {}, 10_000);
  t.after(() => clearInterval(keepAlive));
  const { memory, login } = setUp();
  await login("a", "accepted");
  await memory.attempt("a", never).begin(ANNA, "file");
  await memory.attempt("a", never).begin(ANNA, "file");
});

test("a login is on trial where the proxy has not accepted the credentials before", async () => {
  const { memory } = setUp();
  const trials: string[] = [];
  const isOnTrial = async (proxy: string): Promise<boolean> => {
    const attempt = memory.attempt(proxy, never, () => trials.push(proxy));
    await attempt.begin(ANNA, "file");
    attempt.onSent();
    attempt.onAccepted(true);
    attempt.end();
    return trials.pop() === proxy;
  };
  const proxies = Array.from({ length: 16 }, (_, index) => `proxy ${index}`);
  for (const proxy of proxies) assert.ok(await isOnTrial(proxy));
  for (const proxy of proxies) assert.ok(!(await isOnTrial(proxy)));
  assert.ok(await isOnTrial("one more"), "sixteen proxies are remembered");
  assert.ok(await isOnTrial("proxy 0"), "the oldest one was forgotten");
});

test("sixteen pairs are remembered, and a forgotten proxy does not make room for more failures", async () => {
  const { login } = setUp();
  const pair = (index: number) => ({ credentials: { user: "anna", password: `wrong ${index}` } });
  for (let index = 0; index < 16; index++) assert.ok(await login("a", REFUSED, pair(index)));
  assert.ok(!(await login("a", REFUSED, pair(0))));
  assert.ok(await login("a", REFUSED, pair(16)));
  assert.ok(!(await login("a", REFUSED, pair(0))), "it was used last");
  assert.ok(await login("a", REFUSED, pair(1)), "it was forgotten");
  let sent = 0;
  const proxies = Array.from({ length: 17 }, (_, index) => `proxy ${index}`);
  for (const proxy of [...proxies, ...proxies]) sent += await login(proxy, REFUSED);
  assert.equal(sent, 3);
});
