import assert from "node:assert/strict";
import fs, { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { constants, type NodeGCPerformanceDetail, PerformanceObserver } from "node:perf_hooks";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import {
  cgroupMemoryLimit,
  controlGroups,
  defaultMemoryLimit,
  groupMemory,
  MemoryWatch,
  shareOf,
} from "./memory-limit.ts";

const MIB = 1024 * 1024;
const NONE = Number.POSITIVE_INFINITY;
/** The text of version 1 when there is no limit. */
const V1_NONE = "9223372036854771712\n";

type Files = Readonly<Record<string, string>>;

const CASES: ReadonlyArray<readonly [sentence: string, files: Files, limit: number]> = [
  ["no control groups at all", {}, NONE],
  [
    "version 2, in a container that sees itself as the root",
    { "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n" },
    256 * MIB,
  ],
  ["version 2, without a limit", { "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n" }, NONE],
  [
    "version 2, the group above is the tighter one",
    {
      "proc/self/cgroup": "0::/system.slice/culvert.service\n",
      "sys/fs/cgroup/system.slice/memory.max": "1048576\n",
      "sys/fs/cgroup/system.slice/culvert.service/memory.max": "2097152\n",
    },
    MIB,
  ],
  [
    "version 2, a path that leads out of the container's view",
    { "proc/self/cgroup": "0::/../../other\n", "sys/fs/cgroup/memory.max": "4194304\n" },
    4 * MIB,
  ],
  [
    "version 1, its own group",
    {
      "proc/self/cgroup": "5:devices:/\n4:memory:/pod/one\n1:cpu,cpuacct:/\n",
      "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_NONE,
      "sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes": "8388608\n",
    },
    8 * MIB,
  ],
  [
    "version 1, the host's path in a container",
    { "proc/self/cgroup": "4:memory:/docker/0123\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "8388608\n" },
    8 * MIB,
  ],
  [
    "both versions, the memory controller in version 1",
    {
      "proc/self/cgroup": "4:cpu,memory:/a\n0::/\n",
      "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "16777216\n",
    },
    16 * MIB,
  ],
  ["a group without files", { "proc/self/cgroup": "0::/a\n4:memory:/a\n" }, NONE],
  [
    "nonsense in the list of groups",
    { "proc/self/cgroup": "memory\n::\n\0\0", "sys/fs/cgroup/memory.max": "1048576" },
    NONE,
  ],
  ...["", "0", "-1", "1e9", "12 MiB", "much", "\0"].map(
    (text) =>
      [
        `${JSON.stringify(text)} is no limit`,
        { "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": text },
        NONE,
      ] as const,
  ),
];

for (const [sentence, files, limit] of CASES) {
  test(`the memory limit of the control group — ${sentence}`, (t) => {
    assert.equal(cgroupMemoryLimit(rootWith(t, files)), limit);
  });
}

/** A folder that looks like the root of a machine with these files. */
function rootWith(t: TestContext, files: Files): string {
  const root = mkdtempSync(join(tmpdir(), "culvert-cgroup-"));
  t.after(() => rmSync(root, { recursive: true }));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

/** The files of one control group, in MiB. */
interface Group {
  readonly limit?: number;
  readonly used?: number;
  readonly cache?: number;
}

function groupFiles(version: 1 | 2, groups: Readonly<Record<string, Group>>): Files {
  const [mount, limitFile, usageFile, cacheKey] =
    version === 2
      ? ["sys/fs/cgroup", "memory.max", "memory.current", "file"]
      : ["sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"];
  const none = version === 2 ? "max\n" : V1_NONE;
  const files = Object.entries(groups).flatMap(([path, { limit, used, cache = 0 }]) => [
    [join(mount, path, limitFile), limit === undefined ? none : `${limit * MIB}\n`],
    ...(used === undefined ? [] : [[join(mount, path, usageFile), `${used * MIB}\n`]]),
    [join(mount, path, "memory.stat"), `anon 1\n${cacheKey} ${cache * MIB}\n`],
  ]);
  const line = version === 2 ? "0::/slice/own\n" : "4:memory:/slice/own\n0::/\n";
  return { "proc/self/cgroup": line, ...Object.fromEntries(files) };
}

const TREES: ReadonlyArray<
  readonly [sentence: string, groups: Readonly<Record<string, Group>>, used: number, limit: number]
> = [
  ["its own limit alone", { slice: { used: 900 }, "slice/own": { limit: 200, used: 100 } }, 100, 200],
  [
    "page cache is not used",
    { slice: { limit: 1_000, used: 990, cache: 500 }, "slice/own": { used: 150, cache: 50 } },
    100,
    610,
  ],
  [
    "neighbours use most of the slice: what is free of it may be used, and theirs is not ours",
    { slice: { limit: 1_000, used: 750 }, "slice/own": { used: 50 } },
    50,
    300,
  ],
  [
    "the slice has more to give than the group's own limit",
    { slice: { limit: 1_000, used: 300 }, "slice/own": { limit: 200, used: 100 } },
    100,
    200,
  ],
  [
    "the slice has less to give than the group's own limit",
    { slice: { limit: 1_000, used: 950 }, "slice/own": { limit: 200, used: 100 } },
    100,
    150,
  ],
  [
    "a slice that is full leaves what is used",
    { slice: { limit: 1_000, used: 1_001 }, "slice/own": { used: 100 } },
    100,
    100,
  ],
  [
    "a slice that does not say what it uses is ours alone",
    { slice: { limit: 1_000 }, "slice/own": { used: 100 } },
    100,
    1_000,
  ],
  ["a group that does not say what it uses: the one above it", { slice: { limit: 1_000, used: 300 } }, 300, 1_000],
];

for (const version of [1, 2] as const) {
  for (const [sentence, groups, used, limit] of TREES) {
    test(`what the control group uses and may use, version ${version} — ${sentence}`, (t) => {
      const found = controlGroups(rootWith(t, groupFiles(version, groups)));
      assert.ok(found !== undefined);
      const memory = groupMemory(found);
      assert.deepEqual([memory.used / MIB, memory.limit / MIB], [used, limit]);
    });
  }
}

test("tunnels get half of what an idle process leaves, in whole MiB, and never less than one link's buffer", () => {
  assert.equal(shareOf(512 * MIB), 216 * MIB);
  assert.equal(shareOf(128 * MIB + 5), 24 * MIB);
  for (const bytes of [112 * MIB, 64 * MIB, 1]) assert.equal(shareOf(bytes), 16 * MIB);
  const limit = defaultMemoryLimit();
  assert.ok(limit >= 16 * MIB && limit % MIB === 0 && limit <= Math.max(16 * MIB, totalmem() / 2), `${limit}`);
});

/** A control group of 1,000 MiB, in a slice of 2,000 MiB, whose use the test says, and what the pool hears of it. */
class WatchedGroup implements Disposable {
  readonly heard: (readonly [excess: number, isFull: boolean])[] = [];
  readonly #slice = mkdtempSync(join(tmpdir(), "culvert-memory-watch-"));
  readonly #own = join(this.#slice, "own");
  readonly #watch: MemoryWatch;

  constructor(usedMib: number, cacheMib = 0) {
    mkdirSync(this.#own);
    this.use(usedMib, cacheMib);
    const limited = [
      { limit: 1_000 * MIB, folder: this.#own },
      { limit: 2_000 * MIB, folder: this.#slice },
    ];
    const onProcess = (excess: number, isFull = false) => void this.heard.push([Math.round(excess / MIB), isFull]);
    this.#watch = new MemoryWatch({ version: 2, own: this.#own, limited }, { onProcess });
  }

  use(usedMib: number, cacheMib = 0, neighboursMib = 0): void {
    for (const [folder, used] of [
      [this.#own, usedMib],
      [this.#slice, usedMib + neighboursMib],
    ] as const) {
      writeFileSync(join(folder, "memory.stat"), `anon 1\nfile ${cacheMib * MIB}\n`);
      writeFileSync(join(folder, "memory.current"), `${used * MIB}\n`);
    }
  }

  async next(): Promise<readonly [excess: number, isFull: boolean] | undefined> {
    this.heard.length = 0;
    const deadline = performance.now() + 10_000;
    while (this.heard.length === 0 && performance.now() < deadline) await sleep(5);
    return this.heard[0];
  }

  [Symbol.dispose](): void {
    this.#watch.stop();
    rmSync(this.#slice, { recursive: true });
  }
}

test("up to 60 % of the control group nothing is asked for, page cache not counted", async () => {
  using group = new WatchedGroup(600);
  assert.deepEqual(await group.next(), [0, false]);
  group.use(950, 350);
  assert.deepEqual(await group.next(), [0, false]);
});

test("beyond 60 % what is above that is asked for, and beyond 75 % nothing new is let in, until it has gone", async () => {
  using group = new WatchedGroup(700);
  assert.deepEqual(await group.next(), [100, false]);
  group.use(760);
  assert.deepEqual(await group.next(), [160, true]);
  group.use(500);
  assert.deepEqual(await group.next(), [0, false]);
});

test("what neighbours in the slice use is not asked for; what they leave of it bounds what may be used", async () => {
  using group = new WatchedGroup(300);
  group.use(300, 0, 1_200);
  assert.deepEqual(await group.next(), [0, false]);
  group.use(300, 0, 1_600);
  assert.deepEqual(await group.next(), [60, false], "400 of 2,000 MiB are ours and free");
  group.use(300, 0, 1_690);
  assert.deepEqual(await group.next(), [114, true]);
});

test("a look reads each file of the kernel once, also where memory is short", async (t) => {
  const read = t.mock.method(fs, "readFileSync");
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  using group = new WatchedGroup(700);
  await group.next();
  const reads: number[] = [];
  for (let look = 0; look < 5; look++) {
    read.mock.resetCalls();
    await group.next();
    reads.push(read.mock.callCount());
  }
  // A collection may fall into one of them, after which the files are read again.
  assert.equal(Math.min(...reads), 4, "usage and page cache, of the group and of the slice");
});

/** 16 MiB that nobody has: too few for V8 to collect them while nothing else is allocated. */
function leaveGarbage(): void {
  Array.from({ length: 16 }, () => Buffer.alloc(MIB));
}

/** Collections that were asked for, not V8's own. */
class Collections {
  readonly seen: { readonly begun: number; readonly lasted: number }[] = [];
  readonly #observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind, flags } = (entry as typeof entry & { detail: NodeGCPerformanceDetail }).detail;
      if (kind !== constants.NODE_PERFORMANCE_GC_MAJOR) continue;
      if (((flags ?? 0) & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) === 0) continue;
      this.seen.push({ begun: entry.startTime, lasted: entry.duration });
    }
  });

  constructor() {
    this.#observer.observe({ entryTypes: ["gc"] });
  }

  async until(count: number): Promise<void> {
    const isEnough = (): boolean => {
      leaveGarbage();
      return this.seen.length >= count;
    };
    await until(isEnough, () => `${this.seen.length} of ${count} collections`);
  }

  [Symbol.dispose](): void {
    this.#observer.disconnect();
  }
}

test("where memory is short garbage is collected, and nowhere else", async () => {
  using collections = new Collections();
  using group = new WatchedGroup(500);
  leaveGarbage();
  await group.next();
  await group.next();
  assert.equal(collections.seen.length, 0);
  group.use(700);
  await collections.until(1);
});

test("the loop has ten times as long to itself as the last collection took", async (t) => {
  using collections = new Collections();
  // With this much alive, a collection takes longer than a tenth of the time between two checks.
  const alive = Array.from({ length: 200_000 }, (_, index) => ({ index, next: [index] }));
  using group = new WatchedGroup(700);
  await collections.until(3);
  assert.ok(group.heard.length > 0 && alive.length > 0);
  const rests = collections.seen.slice(1).map(({ begun }, index) => {
    const before = collections.seen[index] as (typeof collections.seen)[number];
    return (begun - before.begun - before.lasted) / before.lasted;
  });
  t.diagnostic(
    `ms: ${collections.seen.map(({ lasted }) => Math.round(lasted))}; rests, times as long: ${rests.map(Math.round)}`,
  );
  assert.ok(Math.min(...rests) >= 10, `rests, in times of the collection before: ${rests.map(Math.round)}`);
});

test("a group that cannot be read asks for nothing", async () => {
  using group = new WatchedGroup(700);
  const folder = mkdtempSync(join(tmpdir(), "culvert-memory-watch-"));
  const heard: number[] = [];
  const watch = new MemoryWatch(
    { version: 1, own: join(folder, "gone"), limited: [{ limit: 1_000, folder: join(folder, "gone") }] },
    { onProcess: (excess) => void heard.push(excess) },
  );
  await group.next();
  while (heard.length === 0) await sleep(5);
  watch.stop();
  rmSync(folder, { recursive: true });
  assert.deepEqual([...new Set(heard)], [0]);
});
