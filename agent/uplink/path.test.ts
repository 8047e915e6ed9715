import assert from "node:assert/strict";
import { test } from "node:test";
import type { LossCause } from "../../shared/link/link-events.ts";
import { Path } from "./path.ts";

const S = 1_000;
const MIN = 60 * S;

type Loss = readonly [lossCause: LossCause, ageMs: number, idleMs: number];

const TABLE: ReadonlyArray<
  readonly [sentence: string, losses: readonly Loss[], learned: { readonly ageLimitMs?: number }]
> = [
  ["nothing is learned of a path that holds", [], {}],
  ["one cut is an accident", [["fin", 10 * MIN, 15 * S]], {}],
  [
    "two accidents at different ages are accidents",
    [
      ["reset", 3 * MIN, 0],
      ["fin", 20 * MIN, 0],
    ],
    {},
  ],
  [
    "connections that were silent for most of their life were cut for that, and not for their age",
    [
      ["fin", 20 * S, 15 * S],
      ["fin", 20 * S, 15.2 * S],
    ],
    {},
  ],
  [
    "and none of them is the second one of an age",
    [
      ["fin", 30 * MIN, 9 * S],
      ["fin", 30 * MIN, 25 * MIN],
    ],
    {},
  ],
  [
    "nobody configures an age of a few seconds",
    [
      ["fin", 4 * S, 10],
      ["fin", 4 * S, 10],
    ],
    {},
  ],
  [
    "those that were silent for less were cut for their age",
    [
      ["fin", 30 * MIN, 9 * S],
      ["fin", 30 * MIN, 9.1 * S],
    ],
    { ageLimitMs: 30 * MIN },
  ],
  [
    "an age is no limit where a connection that was cut for its silence has lived clearly longer",
    [
      ["fin", 30 * MIN, 9 * S],
      ["fin", 40 * MIN, 25 * MIN],
      ["fin", 30 * MIN, 9 * S],
    ],
    {},
  ],
  [
    "a server that restarts twice in a row has no age limit",
    [
      ["reset", 90 * S, 20],
      ["reset", 4 * S, 30],
    ],
    {},
  ],
  [
    "an age that comes again among other cuts is a limit",
    [
      ["fin", 30 * MIN, 10],
      ["reset", 7 * MIN, 5],
      ["fin", 31 * MIN, 400],
    ],
    { ageLimitMs: 30 * MIN },
  ],
  [
    "the smallest such age counts",
    [
      ["fin", 60 * S, 9],
      ["fin", 61 * S, 9],
      ["fin", 30 * S, 9],
      ["fin", 30 * S, 9],
    ],
    { ageLimitMs: 30 * S },
  ],
  [
    "an age is no limit where a connection has lived clearly longer meanwhile",
    [
      ["fin", MIN, 10],
      ["reset", 3 * 60 * MIN, 10],
      ["reset", 62 * S, 10],
    ],
    {},
  ],
  [
    "but where one did before, the path may have changed",
    [
      ["reset", 3 * 60 * MIN, 10],
      ["fin", MIN, 10],
      ["fin", 62 * S, 10],
    ],
    { ageLimitMs: MIN },
  ],
  [
    "a limit that was learned is none any more where a connection has lived clearly longer",
    [
      ["fin", MIN, 10],
      ["fin", MIN, 10],
      ["fin", 2 * MIN, 10],
    ],
    {},
  ],
  [
    "5.5 and 6.6 s are two ages",
    [
      ["reset", 5.5 * S, 10],
      ["reset", 6.6 * S, 10],
    ],
    {},
  ],
  [
    "a path that says nothing any more has no age limit",
    [
      ["silent", 5 * MIN, 50 * S],
      ["silent", 5 * MIN, 50 * S],
    ],
    {},
  ],
];

for (const [sentence, losses, learned] of TABLE) {
  test(sentence, () => {
    const path = new Path({ maxCarrierAgeMs: 0 });
    for (const [lossCause, ageMs, idleMs] of losses) path.onLost({ lossCause, ageMs, idleMs });
    assert.equal(path.ageLimitMs, learned.ageLimitMs);
  });
}

test("a carrier is replaced before the learned age, or the configured one, whichever is sooner, never all at once", () => {
  const ages = (maxCarrierAgeMs: number, limit: boolean) => {
    let draw = 0;
    const path = new Path({ maxCarrierAgeMs, random: () => draw });
    if (limit) for (let cut = 0; cut < 2; cut++) path.onLost({ lossCause: "fin", ageMs: 100 * S, idleMs: 0 });
    const least = path.nextCarrierAgeMs();
    draw = 1;
    return [least, path.nextCarrierAgeMs()].map(Math.round);
  };
  assert.deepEqual(ages(0, false), [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]);
  assert.deepEqual(ages(0, true), [72 * S, 88 * S]);
  assert.deepEqual(ages(50 * S, true), [45 * S, 55 * S]);
  assert.deepEqual(ages(MIN * 60, false), [54 * MIN, 66 * MIN]);
});

const DAY = 24 * 60 * MIN;
const HOUR = 60 * MIN;

const FORGETTING: ReadonlyArray<
  readonly [
    sentence: string,
    losses: readonly (readonly [atMs: number, ...Loss])[],
    askedAtMs: number,
    learned: { readonly ageLimitMs?: number },
  ]
> = [
  [
    "an age limit is kept for a day after it was last seen",
    [
      [0, "fin", HOUR, 0],
      [HOUR, "fin", HOUR, 0],
    ],
    DAY + HOUR - 1,
    { ageLimitMs: HOUR },
  ],
  [
    "and then forgotten: the balancer may be another one by now",
    [
      [0, "fin", HOUR, 0],
      [HOUR, "fin", HOUR, 0],
    ],
    DAY + HOUR,
    {},
  ],
  [
    "a short one is believed for a hundred times itself, because it costs a connection each time",
    [
      [0, "fin", MIN, 0],
      [MIN, "fin", MIN, 0],
    ],
    101 * MIN - 1,
    { ageLimitMs: MIN },
  ],
  [
    "and then tried again",
    [
      [0, "fin", MIN, 0],
      [MIN, "fin", MIN, 0],
    ],
    101 * MIN,
    {},
  ],
  [
    "one cut more at that age keeps it for another day",
    [
      [0, "fin", HOUR, 0],
      [HOUR, "fin", HOUR, 0],
      [DAY, "fin", HOUR, 0],
    ],
    2 * DAY - 1,
    { ageLimitMs: HOUR },
  ],
  [
    "an accident at another age does not",
    [
      [0, "fin", HOUR, 0],
      [HOUR, "fin", HOUR, 0],
      [DAY - 1, "fin", 5 * MIN, 0],
    ],
    DAY + HOUR,
    {},
  ],
  [
    "two cuts of one age that lie more than a day apart are no limit",
    [
      [0, "fin", HOUR, 0],
      [DAY, "fin", HOUR, 0],
    ],
    DAY,
    {},
  ],
];

for (const [sentence, losses, askedAtMs, learned] of FORGETTING) {
  test(sentence, () => {
    let now = 0;
    const path = new Path({ maxCarrierAgeMs: 0, now: () => now });
    for (const [atMs, lossCause, ageMs, idleMs] of losses) {
      now = atMs;
      path.onLost({ lossCause, ageMs, idleMs });
    }
    now = askedAtMs;
    assert.equal(path.ageLimitMs, learned.ageLimitMs);
  });
}

test("what is learned is said once, with the time and with what is done about it", () => {
  let now = 0;
  const path = new Path({ maxCarrierAgeMs: 0, now: () => now });
  const said: string[] = [];
  path.onLesson = ({ lesson, ms, sentence }) => said.push(`${lesson} ${ms} ${sentence}`);
  for (let cut = 0; cut < 4; cut++) path.onLost({ lossCause: "fin", ageMs: 30 * MIN + cut, idleMs: 0 });
  assert.deepEqual(said, [
    `age_limit ${30 * MIN} this path cuts connections that are older than 1800 s: each is now replaced after about 1440 s, which no stream notices`,
  ]);
  said.length = 0;
  for (let cut = 0; cut < 2; cut++) path.onLost({ lossCause: "fin", ageMs: 20 * MIN, idleMs: 0 });
  assert.match(said[0] ?? "", /older than 1200 s/, "a shorter one is news");
  said.length = 0;
  now += 25 * 60 * MIN;
  for (let cut = 0; cut < 2; cut++) path.onLost({ lossCause: "fin", ageMs: 20 * MIN, idleMs: 0 });
  assert.match(said[0] ?? "", /older than 1200 s/, "and so is one that was forgotten");
});

test("bytes are held back where answers to pings are late again and again, until they come in time", () => {
  const path = new Path({ maxCarrierAgeMs: 0 });
  const said: string[] = [];
  path.onLesson = ({ lesson, ms }) => said.push(`${lesson} ${ms}`);
  const echoes = (...times: readonly number[]) => {
    for (const ms of times) path.onEcho(ms);
    return path.heldBackMs;
  };
  assert.equal(echoes(5, 4 * S, 4 * S, 5, 6, 900, 4 * S), undefined, "a bulk transfer is in front of one or two");
  assert.equal(echoes(3 * S, 2 * S), 2 * S);
  assert.deepEqual(said, [`held_back ${2 * S}`]);
  assert.equal(echoes(50, 2 * S, 1.5 * S, 4 * S), 1.5 * S, "one that slips through proves nothing");
  assert.equal(echoes(1, 2, 3, 4), undefined);
  assert.equal(said.length, 1);
  echoes(2 * S, 2 * S, 2 * S);
  assert.equal(said.length, 2);
});
