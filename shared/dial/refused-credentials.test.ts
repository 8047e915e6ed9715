import assert from "node:assert/strict";
import { test } from "node:test";
import { RouteFault } from "./fault.ts";
import { RefusedCredentials, type Verdict } from "./refused-credentials.ts";

const ANNA = { user: "anna", password: "wrong" };
const MINUTE = 60_000;
const through = (proxy: string, server = "s") => ({ proxy, server });

interface Shown {
  readonly credentials?: typeof ANNA;
  readonly server?: string;
  /** In one attempt. */
  readonly times?: number;
}
const REFUSED = "proxy_auth_refused";

function prepared(random = 0) {
  const clock = { now: 0 };
  const memory = new RefusedCredentials(
    () => clock.now,
    () => random,
  );
  const never = new AbortController().signal;
  /** How often was it shown them? As often as it may be, if it gives no word on them for so many `times`. */
  const show = async (proxy: string, verdict: Verdict, options: Shown = {}): Promise<number> => {
    const { credentials = ANNA, server, times = 1 } = options;
    const showing = memory.attempt(through(proxy, server), never);
    try {
      await showing.begin(credentials, "file");
    } catch (error) {
      assert.ok(error instanceof RouteFault);
      showing.end(error.fault);
      return 0;
    }
    let shown = 0;
    for (; shown < times && showing.mayRepeat(); shown++) showing.onShown();
    showing.end(verdict);
    return shown;
  };
  /** When it was shown them, in minutes, asked every minute. */
  const shownUntil = async (end: number, attempt: () => Promise<number>): Promise<number[]> => {
    const at: number[] = [];
    for (; clock.now < end * MINUTE; clock.now += MINUTE) {
      const times = await attempt();
      at.push(...Array<number>(times).fill(clock.now / MINUTE));
    }
    return at;
  };
  return { clock, memory, show, shownUntil, never };
}

/** What comes of showing them, in turn; after which the first comes again. */
const UNTAKEN: readonly (readonly Verdict[])[] = [
  [REFUSED],
  ["timeout"],
  ["proxy_closed"],
  ["proxy_auth_unsupported"],
  [REFUSED, "timeout"],
  ["timeout", REFUSED],
  ["timeout", "proxy_closed", REFUSED],
  [REFUSED, REFUSED, "timeout"],
];

for (const proxies of ["a", "ab", "abcde"]) {
  for (const servers of ["s", "stuvw"]) {
    test(`${proxies.length} proxies to ${servers.length} servers see a password that none takes four times before a rest of half an hour`, async () => {
      for (const times of [1, 2]) {
        for (const verdicts of UNTAKEN) {
          const { show, shownUntil } = prepared();
          let turn = 0;
          const at = await shownUntil(160, async () => {
            let shown = 0;
            for (const server of servers) {
              for (const proxy of proxies) {
                const verdict = verdicts[turn % verdicts.length] ?? REFUSED;
                const now = await show(proxy, verdict, { server, times });
                if (now > 0) turn++;
                shown += now;
              }
            }
            return shown;
          });
          // A directory counts on as long as no half hour passes without one.
          for (const [index, first] of at.entries()) {
            const five = at.slice(index, index + 5);
            const rests = five.some((one, place) => one - (five[place - 1] ?? first) >= 30);
            assert.ok(rests || five.length < 5, `${five} of ${at}, ${verdicts} ${times}`);
          }
          assert.ok(at.length >= 6, `it is tried now and then: ${at}`);
        }
      }
    });
  }
}

test("a proxy that gives no word waits like one that refuses", async () => {
  const cases: readonly (readonly [Verdict, times: number, at: readonly number[]])[] = [
    [REFUSED, 1, [0, 5, 15, 35, 65, 95]],
    ["timeout", 1, [0, 5, 15, 35, 65, 95]],
    ["proxy_auth_unsupported", 2, [0, 0, 10, 10, 40, 40, 70, 70]],
  ];
  for (const [verdict, times, expected] of cases) {
    const { show, shownUntil } = prepared();
    assert.deepEqual(await shownUntil(100, () => show("a", verdict, { times })), expected);
  }
});

test("of several servers that the proxy gives no word for, each has its turn before the wait, and one that answers ends it", async () => {
  const { show } = prepared();
  for (const server of ["dead", "gone"]) {
    assert.ok(await show("a", "timeout", { server }));
    assert.ok(!(await show("a", "timeout", { server })));
  }
  assert.ok(await show("a", "accepted", { server: "good" }));
  assert.ok(await show("a", "timeout", { server: "dead" }));
  for (const server of "stu") assert.ok(await show("b", "timeout", { server }), "all begins anew");
  const wrong = prepared();
  for (const server of "stu") assert.ok(await wrong.show("a", "timeout", { server }));
  assert.ok(!(await wrong.show("a", "timeout", { server: "v" })), "three of them are enough");
  const refused = prepared();
  await refused.show("a", REFUSED, { server: "s" });
  assert.ok(!(await refused.show("a", REFUSED, { server: "t" })), "a refusal is one for all");
});

test("a proxy that gives no word leaves one showing to another, which may take them", async () => {
  const { show } = prepared();
  for (const server of "stu") assert.ok(await show("a", "timeout", { server }));
  for (const server of "stuv") assert.ok(await show("b", "accepted", { server }));
  const wrong = prepared();
  for (const server of "stu") assert.ok(await wrong.show("a", "timeout", { server }));
  assert.ok(await wrong.show("b", "timeout"));
  assert.ok(!(await wrong.show("c", "timeout")), "four of them are enough");
});

test("where one proxy takes them and none refuses them, what others do not say is held against nobody else", async () => {
  const { show } = prepared();
  assert.ok(await show("a", "accepted"));
  for (const server of "stu") assert.ok(await show("b", "proxy_closed", { server }));
  assert.ok(await show("c", "proxy_closed"));
  assert.ok(await show("d", REFUSED));
  assert.ok(!(await show("e", "accepted")), "now one has");
});

test("an answer that may come from a proxy without time for anybody takes no refusal back", async () => {
  const { memory, never, show, shownUntil } = prepared();
  let count = 0;
  const turnAbout = async (): Promise<number> => {
    if (count++ % 2 === 0) return show("a", REFUSED);
    const busy = memory.attempt(through("a"), never);
    try {
      await busy.begin(ANNA, "file");
    } catch {
      busy.end(REFUSED);
      return 0;
    }
    busy.onShown();
    busy.onTaken(false);
    busy.end("proxy_unavailable");
    return 1;
  };
  assert.ok((await shownUntil(30, turnAbout)).length <= 6);
  assert.ok((await shownUntil(60, () => show("a", REFUSED))).length <= 2);
});

test("what a proxy has taken is not held back where it gives no word, until it refuses it", async () => {
  const { show } = prepared();
  assert.ok(await show("a", "accepted"));
  for (let attempt = 0; attempt < 20; attempt++) {
    assert.equal(await show("a", "timeout", { times: 2 }), 2);
    assert.equal(await show("a", "proxy_closed"), 1);
  }
  assert.ok(await show("a", REFUSED));
  assert.ok(!(await show("a", "accepted")));
});

test("an attempt that has not shown them, or whose proxy took them before it failed, costs no wait", async () => {
  const { clock, memory, never, show } = prepared();
  assert.ok(await show("a", "timeout"));
  clock.now += 5 * MINUTE;
  for (let attempt = 0; attempt < 20; attempt++) {
    const dead = memory.attempt(through("a"), never);
    await dead.begin(ANNA, "file");
    dead.end("refused");
  }
  for (let attempt = 0; attempt < 20; attempt++) {
    const forbidden = memory.attempt(through("a"), never);
    await forbidden.begin(ANNA, "file");
    forbidden.onShown();
    forbidden.onTaken(true);
    forbidden.end("proxy_forbidden");
  }
  assert.ok(await show("a", "timeout"));
});

test("an attempt is on trial where the proxy has not taken them before", async () => {
  const { memory, never, show } = prepared();
  const trials: string[] = [];
  const attempt = async (proxy: string, verdict: Verdict): Promise<void> => {
    const showing = memory.attempt(through(proxy), never, () => trials.push(proxy));
    await showing.begin(ANNA, "file");
    showing.onShown();
    showing.end(verdict);
  };
  await attempt("a", "accepted");
  await attempt("a", "timeout");
  await show("b", "accepted");
  await attempt("b", REFUSED);
  await attempt("c", "timeout");
  assert.deepEqual(trials, ["a", "c"]);
});

test("sixteen proxies and sixteen accounts are remembered, the latest, and forgetting one proxy forgives nothing", async () => {
  const { memory, never, show } = prepared();
  const isOnTrial = async (proxy: string): Promise<boolean> => {
    let onTrial = false;
    const showing = memory.attempt(through(proxy), never, () => {
      onTrial = true;
    });
    await showing.begin(ANNA, "file");
    showing.onShown();
    showing.end("accepted");
    return onTrial;
  };
  const proxies = Array.from({ length: 16 }, (_, index) => `proxy ${index}`);
  for (const proxy of proxies) assert.ok(await isOnTrial(proxy));
  for (const proxy of proxies) assert.ok(!(await isOnTrial(proxy)));
  assert.ok(await isOnTrial("one more"));
  assert.ok(await isOnTrial("proxy 0"), "as if it were new");

  const changed = (index: number) => ({ credentials: { user: "anna", password: `wrong ${index}` } });
  for (let index = 0; index < 16; index++) assert.ok(await show("a", REFUSED, changed(index)));
  assert.ok(!(await show("a", REFUSED, changed(0))));
  assert.ok(await show("a", REFUSED, changed(16)));
  assert.ok(!(await show("a", REFUSED, changed(0))), "asked for last");
  assert.ok(await show("a", REFUSED, changed(1)), "as if it were new");

  const other = prepared();
  let shown = 0;
  for (const proxy of [...proxies, "one more", ...proxies]) shown += await other.show(proxy, REFUSED);
  assert.equal(shown, 3);
});

test("the wait grows from 5 to 30 minutes, and chance makes it longer", async () => {
  for (const [random, first, last] of [
    [0, 5, 30],
    [1, 6, 36],
  ] as const) {
    const { clock, show } = prepared(random);
    const shown: number[] = [];
    for (; clock.now <= 200 * MINUTE; clock.now += MINUTE) if (await show("a", REFUSED)) shown.push(clock.now / MINUTE);
    assert.equal((shown[1] ?? 0) - (shown[0] ?? 0), first);
    assert.equal((shown.at(-1) ?? 0) - (shown.at(-2) ?? 0), last);
  }
});

test("a proxy that takes them is shown them, whatever another one says, and one that took them once begins anew", async () => {
  const { clock, show } = prepared();
  assert.ok(await show("a", REFUSED));
  assert.ok(await show("b", "accepted"));
  assert.ok(!(await show("a", "accepted")));
  assert.ok(await show("b", "accepted"));
  clock.now += 5 * MINUTE;
  assert.ok(await show("a", "accepted"));
  assert.ok(await show("a", REFUSED));
  clock.now += 5 * MINUTE;
  assert.ok(await show("a", REFUSED), "the first wait again");
});

test("another password, and another user, are other credentials", async () => {
  const { show } = prepared();
  await show("a", REFUSED);
  assert.ok(await show("a", REFUSED, { credentials: { user: "anna", password: "other" } }));
  assert.ok(await show("a", REFUSED, { credentials: { user: "an", password: "na:wrong" } }));
  assert.ok(!(await show("a", REFUSED)));
});

test("who is not asked hears why, when the same ones are tried again, and how others are sent sooner", async () => {
  const { clock, memory, never, show } = prepared();
  await show("e", "proxy_closed");
  for (const proxy of ["a", "b"]) await show(proxy, REFUSED);
  clock.now += 2 * MINUTE;
  const held = async (proxy: string, from: "file" | "url"): Promise<string> => {
    const error = await memory
      .attempt(through(proxy), never)
      .begin(ANNA, from)
      .catch((reason: Error) => reason);
    assert.ok(error instanceof RouteFault);
    return error.message;
  };
  const wait = "so that no account is locked, they are held back for 18 min, then tried again";
  assert.equal(
    await held("a", "file"),
    `the proxy a refused the user or the password 2 min ago; ${wait}: write others into --proxy-credentials-file, and the next attempt sends those`,
  );
  assert.equal(
    await held("e", "file"),
    `the proxy e was sent the user and the password 2 min ago, and gave no word on them (proxy_closed); ${wait}: write others into --proxy-credentials-file, and the next attempt sends those`,
  );
  assert.equal(
    await held("d", "url"),
    `the proxy d was not sent the user and the password, because other proxies did not take them 2 min ago; ${wait}: put others into the proxy's URL and restart, and those are sent at once`,
  );
});

test("who waits for another attempt's answer stops when its own time is over, and leaves nobody waiting", async () => {
  const { memory, never } = prepared();
  const first = memory.attempt(through("a"), never);
  await first.begin(ANNA, "file");
  const abort = new AbortController();
  const second = memory.attempt(through("a"), abort.signal);
  const waiting = second.begin(ANNA, "file");
  const third = memory.attempt(through("b"), never);
  const next = third.begin(ANNA, "file");
  abort.abort(new Error("no more time"));
  await assert.rejects(waiting, /no more time/);
  second.end("timeout");
  first.end("timeout");
  await next;
  third.end("accepted");
});

test("an attempt that ends while it waits never shows anything", async () => {
  const { memory, never } = prepared();
  const first = memory.attempt(through("a"), never);
  await first.begin(ANNA, "file");
  const gone = memory.attempt(through("a"), never);
  const waiting = gone.begin(ANNA, "file");
  gone.end("timeout");
  first.end("timeout");
  await assert.rejects(waiting);
  const third = memory.attempt(through("a"), never);
  await third.begin(ANNA, "file");
});

test("what was taken before does not wait for an answer that does not come", async (t) => {
  // Elsewhere sockets keep the process.
  const process = setInterval(() => {}, 10_000);
  t.after(() => clearInterval(process));
  const { memory, never, show } = prepared();
  await show("a", "accepted");
  const silent = memory.attempt(through("a"), never);
  await silent.begin(ANNA, "file");
  const next = memory.attempt(through("a"), never);
  await next.begin(ANNA, "file");
});
