import assert from "node:assert/strict";
import { test } from "node:test";
import { WayFault } from "./fault.ts";
import { RefusedCredentials, type Verdict } from "./refused-credentials.ts";

const ANNA = { user: "anna", password: "wrong" };
const MINUTE = 60_000;

function prepared(random = 0) {
  const clock = { now: 0 };
  const memory = new RefusedCredentials(
    () => clock.now,
    () => random,
  );
  const never = new AbortController().signal;
  /** Was it shown them? */
  const show = async (proxy: string, verdict: Verdict, credentials = ANNA): Promise<boolean> => {
    const showing = memory.attempt(proxy, never);
    try {
      await showing.begin(credentials, "file");
    } catch (error) {
      assert.ok(error instanceof WayFault && error.fault === "proxy_auth_refused");
      showing.end("refused");
      return false;
    }
    showing.end(verdict);
    return true;
  };
  return { clock, memory, show, never };
}

test("no proxies, however many, are shown a refused password five times in any half hour", async () => {
  for (const proxies of [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d", "e", "f", "g", "h"]]) {
    const { clock, show } = prepared();
    const shown: number[] = [];
    for (; clock.now < 300 * MINUTE; clock.now += MINUTE / 4) {
      for (const proxy of proxies) if (await show(proxy, "refused")) shown.push(clock.now / MINUTE);
    }
    for (const from of shown) {
      const within = shown.filter((at) => at >= from && at < from + 30).length;
      assert.ok(within <= 4, `${within} in half an hour by ${proxies.length} proxies: ${shown}`);
    }
    assert.ok(shown.length >= 10, "it is tried now and then");
  }
});

test("the wait grows from 5 to 30 minutes, and chance makes it longer", async () => {
  for (const [random, first, last] of [
    [0, 5, 30],
    [1, 6, 36],
  ] as const) {
    const { clock, show } = prepared(random);
    const shown: number[] = [];
    for (; clock.now <= 200 * MINUTE; clock.now += MINUTE)
      if (await show("a", "refused")) shown.push(clock.now / MINUTE);
    assert.equal((shown[1] ?? 0) - (shown[0] ?? 0), first);
    assert.equal((shown.at(-1) ?? 0) - (shown.at(-2) ?? 0), last);
  }
});

test("a proxy that takes them is shown them, whatever another one says, and one that took them once begins anew", async () => {
  const { clock, show } = prepared();
  assert.ok(await show("a", "refused"));
  assert.ok(await show("b", "accepted"));
  assert.ok(!(await show("a", "accepted")));
  assert.ok(await show("b", "accepted"));
  clock.now += 5 * MINUTE;
  assert.ok(await show("a", "accepted"));
  assert.ok(await show("a", "refused"));
  clock.now += 5 * MINUTE;
  assert.ok(await show("a", "refused"), "the first wait again");
});

test("another password, and another user, are other credentials", async () => {
  const { show } = prepared();
  await show("a", "refused");
  assert.ok(await show("a", "refused", { user: "anna", password: "other" }));
  assert.ok(await show("a", "refused", { user: "an", password: "na:wrong" }));
  assert.ok(!(await show("a", "refused")));
});

test("who is not asked hears why, when the same ones are tried again, and how others are sent sooner", async () => {
  const { clock, memory, never, show } = prepared();
  for (const proxy of ["a", "b", "c"]) await show(proxy, "refused");
  clock.now += 2 * MINUTE;
  const held = async (proxy: string, from: "file" | "url"): Promise<string> => {
    const error = await memory
      .attempt(proxy, never)
      .begin(ANNA, from)
      .catch((reason: Error) => reason);
    assert.ok(error instanceof WayFault);
    return error.message;
  };
  const wait = "so that no account is locked, they are held back for 18 min, then tried again";
  assert.equal(
    await held("a", "file"),
    `the proxy a refused the user or the password 2 min ago; ${wait}: write others into --proxy-credentials-file, and the next attempt sends those`,
  );
  assert.equal(
    await held("d", "url"),
    `the proxy d was not sent the user and the password, because other proxies refused them 2 min ago; ${wait}: put others into the proxy's URL and restart, and those are sent at once`,
  );
});

test("an answer that says nothing of the password leaves things as they are", async () => {
  const { show } = prepared();
  assert.ok(await show("a", "unknown"));
  assert.ok(await show("a", "unknown"));
});

test("who waits for another attempt's answer stops when its own time is over, and leaves nobody waiting", async () => {
  const { memory, never } = prepared();
  const first = memory.attempt("a", never);
  await first.begin(ANNA, "file");
  const abort = new AbortController();
  const second = memory.attempt("a", abort.signal);
  const waiting = second.begin(ANNA, "file");
  const third = memory.attempt("b", never);
  const next = third.begin(ANNA, "file");
  abort.abort(new Error("no more time"));
  await assert.rejects(waiting, /no more time/);
  second.end("unknown");
  first.end("unknown");
  await next;
  third.end("accepted");
});

test("an attempt that ends while it waits never shows anything", async () => {
  const { memory, never } = prepared();
  const first = memory.attempt("a", never);
  await first.begin(ANNA, "file");
  const gone = memory.attempt("a", never);
  const waiting = gone.begin(ANNA, "file");
  gone.end("unknown");
  first.end("unknown");
  await assert.rejects(waiting);
  const third = memory.attempt("a", never);
  await third.begin(ANNA, "file");
});

test("what was taken before does not wait for an answer that does not come", async (t) => {
  // Elsewhere sockets keep the process.
  const process = setInterval(() => {}, 10_000);
  t.after(() => clearInterval(process));
  const { memory, never, show } = prepared();
  await show("a", "accepted");
  const silent = memory.attempt("a", never);
  await silent.begin(ANNA, "file");
  const next = memory.attempt("a", never);
  await next.begin(ANNA, "file");
});
