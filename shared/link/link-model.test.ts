import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import type { TransportConsumer } from "../yamux/transport.ts";
import type { ProvenResume } from "./control.ts";
import { Link } from "./link.ts";
import { LinkLost } from "./link-events.ts";
import { LinkKey } from "./proof.ts";
import { Pool, Wire } from "./testing/wire.ts";

type Side = "agent" | "server";
const OTHER: Record<Side, Side> = { agent: "server", server: "agent" };
const GRACE_MS: Record<Side, number> = { agent: 1_000, server: 1_500 };
const REPLAY_BYTES = 16 * 1024 * 1024;

/** Byte n of any direction, so that a byte in the wrong place is seen. */
const PERIOD = 65_521;
const PATTERN = Buffer.alloc(
  PERIOD * 8,
  Buffer.from(Array.from({ length: PERIOD }, (_, n) => (n * 31 + (n >> 8)) & 0xff)),
);

function bytesAt(offset: number, length: number): Buffer {
  const from = offset % PERIOD;
  return PATTERN.subarray(from, from + length);
}

/** The naive oracle of one end: what it was given is, at any time, the beginning of what the other end has sent. */
class Oracle implements TransportConsumer {
  readonly name: string;
  sent = 0;
  received = 0;
  ends = 0;

  constructor(name: string) {
    this.name = name;
  }

  onBytes(chunk: Buffer): void {
    assert.equal(this.ends, 0, `${this.name}: bytes behind the end`);
    assert.ok(chunk.equals(bytesAt(this.received, chunk.length)), `${this.name}: wrong bytes at ${this.received}`);
    this.received += chunk.length;
  }

  onWritable(): void {
    assert.equal(this.ends, 0, `${this.name}: writable behind the end`);
  }

  onClosed(reason: Error | undefined): void {
    assert.ok(reason === undefined || reason instanceof LinkLost, `${this.name}: ${reason?.message}`);
    this.ends++;
    assert.equal(this.ends, 1, `${this.name}: ended twice`);
  }
}

/** A hello under way: what it names was true when it was sent. */
interface Resume {
  readonly wire: Wire;
  readonly words: ProvenResume;
  /** It has reached the server. */
  arrived: boolean;
  /** The agent still waits for the answer. */
  wanted: boolean;
  /** The server's answer. */
  answer: { readonly received: number; readonly proof: string } | undefined;
}

/** Both ends of a link, the wires between them, and the agent's attempts. */
class World {
  readonly links: Record<Side, Link>;
  readonly oracles: Record<Side, Oracle> = { agent: new Oracle("agent"), server: new Oracle("server") };
  readonly wires: Wire[] = [new Wire()];
  readonly resumes: Resume[] = [];
  readonly keys: Record<Side, LinkKey>;
  readonly pool = new Pool();
  readonly tick: (ms: number) => void;

  constructor(tick: (ms: number) => void) {
    this.tick = tick;
    const server = LinkKey.random();
    this.keys = { server, agent: LinkKey.parse(server.text) };
    const wire = this.wires[0] as Wire;
    const { pool } = this;
    const make = (side: Side) =>
      new Link("link", side, wire[side], { graceMs: GRACE_MS[side], replayBytes: REPLAY_BYTES, pool });
    this.links = { agent: make("agent"), server: make("server") };
    for (const side of ["agent", "server"] as const) this.links[side].start(this.oracles[side]);
  }

  send(side: Side, length: number): void {
    const oracle = this.oracles[side];
    if (this.links[side].closed) return;
    const bytes = bytesAt(oracle.sent, length);
    const half = length >> 1;
    this.links[side].write([bytes.subarray(0, half), bytes.subarray(half)], length);
    oracle.sent += length;
  }

  get attempt(): Resume | undefined {
    return this.resumes.find(({ wanted }) => wanted);
  }

  /** The agent sends a hello that names its link, on a new wire. */
  dial(): void {
    if (this.attempt !== undefined || this.links.agent.closed) return;
    this.links.agent.acks.hold();
    this.resumes.push(this.hello(this.prove(this.links.agent.received), true));
  }

  /** The resume in a hello that the agent makes now. */
  prove(received: number, key = this.keys.agent): ProvenResume {
    return key.prove({ link: "link", received });
  }

  hello(words: ProvenResume, wanted = false): Resume {
    const wire = new Wire();
    this.wires.push(wire);
    return { wire, words, arrived: false, wanted, answer: undefined };
  }

  /**
   * The hello reaches the server, which accepts or refuses it as `Links.resume` does. Returns whether it was accepted.
   */
  arrive(resume: Resume): boolean {
    const { wire, words } = resume;
    if (resume.arrived || wire.isCut) return false;
    resume.arrived = true;
    const [link, key] = [this.links.server, this.keys.server];
    if (!key.accepts(words) || !link.canResumeAt(words.received)) {
      wire.cut();
      return false;
    }
    key.spend(words);
    const { received } = link;
    resume.answer = { received, proof: key.answer(words, received) };
    link.offer(wire.server, "new", { peerReceived: words.received, named: received });
    return true;
  }

  /** The server accepts a hello that the agent has made and still waits for. */
  honestHello(): void {
    const { attempt } = this;
    if (attempt === undefined || attempt.arrived || attempt.wire.isCut || this.links.server.closed) return;
    assert.ok(this.arrive(attempt), "an honest resume was refused");
  }

  /** The answer reaches the agent, or the agent sees that it was refused. */
  answer(resume: Resume): void {
    if (!resume.arrived || !resume.wanted) return;
    if (resume.answer === undefined) this.giveUp(resume);
    else if (!resume.wire.isCut && !this.links.agent.closed) {
      resume.wanted = false;
      assert.ok(this.keys.agent.isAnswer("link", resume.answer), "the agent does not believe its server");
      const at = { peerReceived: resume.answer.received, named: resume.words.received };
      this.links.agent.resume(resume.wire.agent, "new", at);
      this.links.agent.acks.now();
    }
  }

  /** The agent's attempt has come to nothing. */
  giveUp(resume: Resume): void {
    if (!resume.wanted) return;
    resume.wanted = false;
    resume.wire.cut();
    this.links.agent.acks.release();
  }

  check(): void {
    const { agent, server } = this.links;
    assert.equal(this.pool.held, agent.unacknowledged + server.unacknowledged, "the pool does not hold what is kept");
    for (const side of ["agent", "server"] as const) {
      const [own, peer] = [this.oracles[side], this.oracles[OTHER[side]]];
      assert.equal(this.links[side].received, own.received);
      assert.ok(own.received <= peer.sent, `${side} has bytes that nobody sent`);
      if (this.links[side].closed) assert.equal(own.ends, 1, `${side} was not told of the end`);
      else
        assert.ok(own.sent - this.links[side].unacknowledged <= peer.received, `${side} let go of bytes not received`);
    }
  }

  /** The network heals: everything arrives, unless an end has given the link up. */
  heal(): void {
    if (this.links.agent.closed || this.links.server.closed) {
      for (const wire of this.wires) for (const side of ["agent", "server"] as const) wire[side].notice();
      this.tick(5_000);
      assert.ok(this.links.agent.closed && this.links.server.closed, "an end outlives the other's and its grace");
      return;
    }
    for (const resume of this.resumes) this.giveUp(resume);
    for (const wire of this.wires) wire.cut();
    this.dial();
    const resume = this.attempt as Resume;
    assert.ok(this.arrive(resume), "an honest resume was refused");
    this.answer(resume);
    for (let round = 0; round < 2 || (round < 200 && !this.isQuiet()); round++) {
      for (const side of ["agent", "server"] as const) resume.wire.deliver(side, 1 << 20);
      this.tick(20);
    }
    for (const side of ["agent", "server"] as const) {
      assert.equal(this.oracles[side].received, this.oracles[OTHER[side]].sent, `${side} has not got everything`);
      assert.equal(this.links[side].unacknowledged, 0, `${side} keeps what has arrived`);
    }
    for (const { words } of this.resumes) assert.ok(!this.keys.server.accepts(words), "an old proof is still good");
  }

  isQuiet(): boolean {
    return (["agent", "server"] as const).every(
      (side) => this.links[side].unacknowledged === 0 && this.oracles[side].received === this.oracles[OTHER[side]].sent,
    );
  }
}

/** The next event by its name: fast-check shows these words, shrunk, when a run fails. */
class Step implements fc.Command<object, World> {
  readonly #words: string;
  readonly #run: (world: World) => void;

  constructor(words: string, run: (world: World) => void) {
    this.#words = words;
    this.#run = run;
  }

  check(): boolean {
    return true;
  }

  run(_model: object, world: World): void {
    this.#run(world);
    world.check();
  }

  toString(): string {
    return this.#words;
  }
}

const side = fc.constantFrom<Side>("agent", "server");
const size = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 50 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 300_000 }) },
);
/** Among the wires that there are, counted from the newest: an attempt's, the one that it is to replace, older ones. */
const which = fc.oneof(
  { weight: 3, arbitrary: fc.constant(0) },
  { weight: 3, arbitrary: fc.constant(1) },
  { weight: 1, arbitrary: fc.nat(4) },
);

function pick<T>(all: readonly T[], back: number): T | undefined {
  return all[Math.max(0, all.length - 1 - back)];
}

const steps = [
  fc.tuple(side, size).map(([at, n]) => new Step(`${at} sends ${n}`, (world) => world.send(at, n))),
  fc
    .tuple(side, size, which)
    .map(
      ([from, n, back]) =>
        new Step(`${n} bytes of ${from} pass on wire -${back}`, (world) => pick(world.wires, back)?.deliver(from, n)),
    ),
  fc
    .tuple(side, which)
    .map(
      ([from, back]) =>
        new Step(`a message of ${from} passes on wire -${back}`, (world) => pick(world.wires, back)?.deliver(from, 0)),
    ),
  fc.integer({ min: 1, max: 30 }).map((ms) => new Step(`${ms} ms pass`, (world) => world.tick(ms))),
  which.map((back) => new Step(`wire -${back} is cut`, (world) => pick(world.wires, back)?.cut())),
  fc.tuple(side, which).map(
    ([at, back]) =>
      new Step(`${at} notices that wire -${back} is gone`, (world) => {
        pick(world.wires, back)?.cut();
        pick(world.wires, back)?.[at].notice();
      }),
  ),
  fc.constant(new Step("the agent asks to resume", (world) => world.dial())),
  fc.constant(new Step("the hello arrives", (world) => world.honestHello())),
  fc.constant(new Step("the answer arrives", (world) => world.attempt && world.answer(world.attempt))),
  fc.constant(new Step("the attempt is given up", (world) => world.attempt && world.giveUp(world.attempt))),
  which.map(
    (back) =>
      new Step(`hello -${back} arrives late`, (world) => {
        const resume = pick(world.resumes, back);
        if (resume !== undefined) world.arrive(resume);
      }),
  ),
  which.map(
    (back) =>
      new Step(`hello -${back} arrives a second time`, (world) => {
        const resume = pick(world.resumes, back);
        if (resume?.arrived !== true) return;
        assert.equal(world.arrive(world.hello(resume.words)), false, "a proof was accepted twice");
      }),
  ),
  fc.constantFrom(-1, 1).map(
    (beyond) =>
      new Step(
        `a hello names an offset ${beyond > 0 ? "ahead of what was sent" : "behind what was freed"}`,
        (world) => {
          if (world.attempt !== undefined) return;
          const { server } = world.links;
          const { sent } = world.oracles.server;
          const offset = beyond > 0 ? sent + 1 : sent - server.unacknowledged - 1;
          const before = [server.suspended, server.closed, server.unacknowledged];
          assert.equal(world.arrive(world.hello(world.prove(offset))), false);
          assert.deepEqual([server.suspended, server.closed, server.unacknowledged], before);
        },
      ),
  ),
  fc.constant(
    new Step("a hello comes that another key proves", (world) => {
      const words = world.prove(world.links.agent.received, LinkKey.random());
      assert.equal(world.arrive(world.hello(words)), false);
    }),
  ),
];
const often = [
  fc.tuple(side, size).map(
    ([from, n]) =>
      new Step(`while a carrier is changed, ${n} bytes of ${from} pass on the old one`, (world) => {
        world.dial();
        pick(world.wires, 1)?.deliver(from, n);
        world.tick(20);
        pick(world.wires, 1)?.deliver(OTHER[from], 0);
        world.honestHello();
        if (world.attempt !== undefined) world.answer(world.attempt);
      }),
  ),
];
const rarely = [fc.integer({ min: 900, max: 1_600 }).map((ms) => new Step(`${ms} ms pass`, (world) => world.tick(ms)))];

function stoppedClock(t: TestContext): (ms: number) => void {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  return (ms) => {
    now += ms;
    t.mock.timers.tick(ms);
  };
}

test("whatever is cut, lost, late or repeated, each end is given what the other has sent, in order and once", (t) => {
  const tick = stoppedClock(t);
  const step = fc.oneof(
    ...steps.map((arbitrary) => ({ weight: 10, arbitrary })),
    ...often.map((arbitrary) => ({ weight: 20, arbitrary })),
    ...rarely.map((arbitrary) => ({ weight: 1, arbitrary })),
  );
  fc.assert(
    fc.property(fc.commands([step], { maxCommands: 60, size: "max" }), (commands) => {
      const world = new World(tick);
      fc.modelRun(() => ({ model: {}, real: world }), commands);
      world.heal();
      for (const at of ["agent", "server"] as const) world.links[at].destroy();
      assert.equal(world.pool.held, 0, "links that have ended hold something");
    }),
    { numRuns: process.env["CI"] === "true" ? 10_000 : 500, includeErrorInReport: true },
  );
});
