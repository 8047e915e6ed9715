import assert from "node:assert/strict";
import { test } from "node:test";
import { VerificationCache } from "./verification-cache.ts";
import type { VerificationResult, VerifyContext } from "./verifier.ts";

const FAR = Date.now() + 3_600_000;
const refused = (name: string): VerificationResult => ({ refused: name });
const good = (subject: string): VerificationResult => ({ ok: { subject, expiresAt: new Date(FAR) } });
const { signal } = new AbortController();
const from = (network: string): VerifyContext => ({ signal, network });
const PEER = from("10.0.0.1");
/** An open tunnel. */
const TUNNEL: VerifyContext = { signal };

/** Questions that are answered when the test says so. */
function open(cache: VerificationCache) {
  const answers = new Map<string, (found: VerificationResult) => void>();
  const dropped: string[] = [];
  const ask = (token: string, context = PEER): Promise<VerificationResult> =>
    cache.get(token, context, (signal) => {
      signal.addEventListener("abort", () => dropped.push(token));
      return new Promise((resolve) => answers.set(token, resolve));
    });
  const answer = (token: string): void => answers.get(token)?.(refused(token));
  return { ask, answer, dropped, asked: () => [...answers.keys()] };
}

test("the number of kept results is bounded: the oldest is dropped", async () => {
  const cache = new VerificationCache({ maxKept: 2, maxPending: 10 });
  const asked: string[] = [];
  const ask = (token: string) =>
    cache.get(token, PEER, async () => {
      asked.push(token);
      return refused(token);
    });
  for (const token of ["a", "b", "c", "b", "c", "a"]) assert.deepEqual(await ask(token), { refused: token });
  assert.deepEqual(asked, ["a", "b", "c", "a"]);
  cache.clear();
  await ask("a");
  assert.deepEqual(asked.slice(4), ["a"]);
});

test("hundreds of refusals displace no good result", async () => {
  const cache = new VerificationCache({ maxKept: 2, maxPending: 10 });
  await cache.get("good", PEER, async () => good("agent"));
  for (let count = 0; count < 50; count++) await cache.get(`bad ${count}`, PEER, async () => refused("bad"));
  assert.ok("ok" in (await cache.get("good", PEER, () => assert.fail("it was asked again"))));
});

test("one verification too many drops the oldest of the network that has most, whose peer is asked to come back", async () => {
  const cache = new VerificationCache({ maxKept: 10, maxPending: 3 });
  const { ask, answer, dropped } = open(cache);
  const flood = ["f1", "f2", "f3"].map((token) => ask(token));
  const [honest, same] = [ask("h1", from("10.0.0.2")), ask("h1", from("10.0.0.3"))];
  const first = await (flood[0] ?? assert.fail());
  assert.ok("unavailable" in first && first.retryAfterMs === 1_000, JSON.stringify(first));
  assert.deepEqual(dropped, ["f1"]);
  for (const token of ["f2", "f3", "h1"]) answer(token);
  assert.deepEqual(await Promise.all([...flood.slice(1), honest, same]), [
    { refused: "f2" },
    { refused: "f3" },
    { refused: "h1" },
    { refused: "h1" },
  ]);
});

test("tokens of tunnels that stand are asked about whatever peers ask", async () => {
  const cache = new VerificationCache({ maxKept: 10, maxPending: 1 });
  const { ask, answer, dropped, asked } = open(cache);
  const standing = cache.get("mine", TUNNEL, async () => good("agent"));
  void ask("f1");
  const own = ask("s1", TUNNEL);
  void ask("f2");
  answer("s1");
  assert.deepEqual(await own, { refused: "s1" });
  assert.ok("ok" in (await standing));
  assert.deepEqual([asked(), dropped], [["f1", "s1", "f2"], ["f1"]]);
});

test("a network has a hundred questions at once and fifty a second, and others have theirs", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const cache = new VerificationCache({ maxKept: 10, maxPending: 10 });
  let count = 0;
  const isAsked = async (network: string): Promise<boolean> => {
    const verdict = await cache.get(`token ${count++}`, from(network), async () => refused("bad"));
    return "refused" in verdict;
  };
  const askedOf = async (network: string, many: number): Promise<number> => {
    let asked = 0;
    for (let index = 0; index < many; index++) if (await isAsked(network)) asked++;
    return asked;
  };
  assert.equal(await askedOf("10.0.0.1", 200), 100);
  assert.equal(await askedOf("10.0.0.2", 10), 10);
  now = 1_000;
  assert.equal(await askedOf("10.0.0.1", 200), 50);
  const late = await cache.get("late", PEER, () => assert.fail("asked"));
  assert.ok("unavailable" in late && late.retryAfterMs === 20, JSON.stringify(late));
});

test("a verification that throws is not kept: the next one starts anew", async () => {
  const cache = new VerificationCache({ maxKept: 10, maxPending: 1 });
  await assert.rejects(
    cache.get("secret", PEER, () => Promise.reject(new Error("broken"))),
    /broken/,
  );
  assert.deepEqual(await cache.get("secret", PEER, async () => refused("x")), { refused: "x" });
});
