import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CACHED_MS,
  type Directory,
  type DirectoryQuestion,
  type DirectoryState,
  type Location,
  Locations,
  MAX_CACHED,
  NOBODY_MS,
} from "./directory.ts";

function at(serverId: string, address = `${serverId}:8096`): Location {
  return { serverId, address };
}

function world() {
  const state = {
    ...{ now: 0, answers: [] as Location[], isUp: true, unanswered: undefined as "silent" | "busy" | undefined },
    release: undefined as (() => void) | undefined,
  };
  const questions: DirectoryQuestion[] = [];
  const results: string[] = [];
  let held: Promise<void> | undefined;
  const directory: Directory = {
    join: () => {},
    leave: () => {},
    ask: async (question, accepts) => {
      questions.push(question);
      await held;
      return state.unanswered ?? state.answers.find(accepts);
    },
    get state(): DirectoryState {
      return { canAsk: state.isUp, detail: "", faults: [], trouble: undefined };
    },
    close: async () => {},
  };
  const metrics = { asked: (result: string) => void results.push(result) };
  const locations = new Locations({ directory, metrics, serverId: "srv-1", now: () => state.now });
  const hold = () => {
    held = new Promise((resolve) => {
      state.release = resolve;
    });
  };
  return { ...{ state, questions, results, locations, hold } };
}

test("an answer is used again for some seconds, and concurrent CONNECTs of one cluster ask once", async () => {
  const { state, questions, locations, hold } = world();
  state.answers = [at("srv-2")];
  hold();
  const all = [1, 2, 3].map(() => locations.ofCluster("blue"));
  state.release?.();
  assert.deepEqual(await Promise.all(all), [at("srv-2"), at("srv-2"), at("srv-2")]);
  assert.equal(questions.length, 1);
  state.now = CACHED_MS - 1;
  await locations.ofCluster("blue");
  assert.equal(questions.length, 1);
  state.now = CACHED_MS;
  await locations.ofCluster("blue");
  assert.equal(questions.length, 2);
});

test("an answer that was of no use is forgotten, and only that one", async () => {
  const { state, questions, locations } = world();
  state.answers = [at("srv-2"), at("srv-3")];
  await locations.ofCluster("blue");
  locations.drop("blue", at("srv-2", "another:1"));
  await locations.ofCluster("blue");
  assert.equal(questions.length, 1);
  locations.drop("blue", at("srv-2"));
  await locations.ofCluster("blue");
  assert.equal(questions.length, 2);
  assert.deepEqual(await locations.ofCluster("blue", [at("srv-2")]), at("srv-3"), "another one than that");
  assert.equal(await locations.ofCluster("blue", [at("srv-2"), at("srv-3")]), undefined, "none but those");
});

test("a server that could answer and does not, or has too much to answer, is named until one answers, or nobody could", async () => {
  const { state, locations } = world();
  state.answers = [at("srv-2")];
  await locations.ofCluster("blue");
  assert.equal(locations.trouble("blue"), undefined);
  locations.drop("blue", at("srv-2"));
  state.unanswered = "silent";
  assert.equal(await locations.ofCluster("blue"), undefined);
  assert.equal(locations.trouble("blue"), 'server "srv-2", which may have one, does not respond: check its process');
  assert.equal(await locations.ofCluster("red"), undefined);
  assert.equal(locations.trouble("red"), "a server that may have one does not respond: check the servers' processes");
  state.unanswered = "busy";
  state.now = NOBODY_MS;
  await locations.ofCluster("blue");
  assert.match(
    locations.trouble("blue") ?? "",
    /^server "srv-2", which may have one, has more questions .* than it answers/,
  );
  state.unanswered = undefined;
  state.now = 2 * NOBODY_MS;
  await locations.ofCluster("blue");
  state.answers = [];
  await locations.ofCluster("red");
  assert.deepEqual([locations.trouble("blue"), locations.trouble("red")], [undefined, undefined]);
});

test("that nobody has the cluster counts for one step of those who wait, and an answer that leads back here is none", async () => {
  const { state, questions, results, locations } = world();
  state.answers = [at("srv-1")];
  assert.equal(await locations.ofCluster("blue"), undefined);
  state.answers = [at("srv-2")];
  state.now = NOBODY_MS - 1;
  assert.equal(await locations.ofCluster("blue"), undefined);
  assert.equal(questions.length, 1);
  assert.deepEqual(await locations.ofCluster("red"), at("srv-2"), "another cluster");
  assert.deepEqual(await locations.ofCluster("blue", [at("srv-3")]), at("srv-2"), "after a server that was of no use");
  locations.drop("blue", at("srv-2"));
  state.answers = [];
  state.isUp = false;
  state.now = 2 * NOBODY_MS;
  assert.equal(await locations.ofCluster("blue"), undefined);
  assert.deepEqual(results, ["none", "found", "found", "down"]);
});

test("while the directory cannot be asked, or nobody who could answer does, the last answer is used, however old", async () => {
  const { state, questions, locations } = world();
  state.answers = [at("srv-2")];
  await locations.ofCluster("blue");
  const cases = [{ isUp: false }, { unanswered: "silent" as const }, { unanswered: "busy" as const }];
  for (const [index, trouble] of cases.entries()) {
    Object.assign(state, { answers: [], isUp: true, unanswered: undefined, ...trouble });
    state.now += 86_400_000;
    for (const again of ["asked", "not asked again"]) {
      assert.deepEqual(await locations.ofCluster("blue"), at("srv-2"), `${JSON.stringify(trouble)}, ${again}`);
    }
    assert.equal(questions.length, 2 + index, "one question in 5 s, as with an answer");
    assert.equal(await locations.ofCluster("red"), undefined, "nothing was said of this one");
    questions.pop();
    assert.equal(await locations.ofCluster("blue", [at("srv-2")]), undefined, "that one has been asked already");
    questions.pop();
  }
  Object.assign(state, { isUp: true, unanswered: undefined });
  state.now += CACHED_MS;
  assert.equal(await locations.ofCluster("blue"), undefined, "the directory says that nobody has it");
  state.answers = [at("srv-3")];
  state.now += NOBODY_MS;
  assert.deepEqual(await locations.ofCluster("blue"), at("srv-3"), "the directory's word counts again");
});

test("a last answer that was of no use rests while the directory cannot be asked, and is then tried again", async () => {
  const { state, locations } = world();
  state.answers = [at("srv-2")];
  await locations.ofCluster("blue");
  state.isUp = false;
  state.answers = [];
  for (let round = 0; round < 3; round++) {
    locations.drop("blue", at("srv-2"));
    for (const until = state.now + CACHED_MS; state.now < until; state.now += 200) {
      assert.equal(await locations.ofCluster("blue"), undefined, "a CONNECT waits for an agent here meanwhile");
    }
    assert.deepEqual(await locations.ofCluster("blue"), at("srv-2"));
  }
});

test("of clusters that have a last answer a bounded number is remembered", async () => {
  const { state, locations } = world();
  state.answers = [at("srv-2")];
  for (let number = 0; number <= MAX_CACHED; number++) await locations.ofCluster(`c-${number}`);
  state.isUp = false;
  state.answers = [];
  state.now = CACHED_MS;
  assert.equal(await locations.ofCluster("c-0"), undefined);
  assert.deepEqual(await locations.ofCluster(`c-${MAX_CACHED}`), at("srv-2"));
});

test("ten CONNECTs that ask every 200 ms for a cluster that nobody has are one question in each step", async () => {
  const { state, questions, locations } = world();
  for (state.now = 0; state.now < 5_000; state.now += 20) await locations.ofCluster("blue");
  assert.ok(questions.length <= 25, `${questions.length} questions`);
  assert.ok(questions.length >= 20, `${questions.length} questions`);
});

test("of clusters that nobody has a bounded number is remembered", async () => {
  const { questions, locations } = world();
  for (let number = 0; number <= 20_000; number++) await locations.ofCluster(`c-${number}`);
  await locations.ofCluster("c-20000");
  assert.equal(questions.length, 20_001);
  await locations.ofCluster("c-0");
  assert.equal(questions.length, 20_002);
});

test("a question for a server takes the answer of no other", async () => {
  const { state, locations } = world();
  state.answers = [at("srv-3"), at("srv-2")];
  assert.deepEqual(await locations.ofServer("srv-2"), at("srv-2"));
  assert.equal(await locations.ofServer("srv-4"), undefined);
});

test("a server that is not found is asked for once in each step, however many of its agents come one after the other", async () => {
  const { state, questions, locations } = world();
  for (state.now = 0; state.now < NOBODY_MS; state.now += 5) {
    assert.equal(await locations.ofServer("srv-2"), undefined);
  }
  assert.equal(questions.length, 1);
  state.answers = [at("srv-2"), at("srv-3")];
  assert.deepEqual(await locations.ofServer("srv-3"), at("srv-3"), "another server");
  assert.deepEqual(await locations.ofServer("srv-2"), at("srv-2"));
});

test("a flood of questions that are not answered is bounded", async () => {
  const { state, questions, locations, hold } = world();
  hold();
  const all = Array.from({ length: 5_000 }, (_, number) => locations.ofCluster(`c-${number}`));
  assert.ok(questions.length <= 1_024);
  state.release?.();
  await Promise.all(all);
});
