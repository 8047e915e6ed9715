import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { until } from "../../shared/basics/testing/wait.ts";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { dialFault, SECURING } from "../../shared/link/dial-faults.ts";
import type { Link } from "../../shared/link/link.ts";
import { CarrierLost, type LinkWatcher, type ResumeReport } from "../../shared/link/link-events.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { welcome } from "../../shared/link/testing/ends.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { Flag, FrameType, GoAwayCode, header } from "../../shared/yamux/frame.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { AgentMetrics } from "../context/metrics.ts";
import { contextOf, optionsOf } from "../testing/context.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { Path } from "./path.ts";
import type { Carriers } from "./resumption.ts";
import { Uplink } from "./uplink.ts";

/** A link over a pair of Duplex, whose far end the test holds. */
class PairLink extends DuplexTransport {
  readonly id: string;
  readonly remote = "test";
  readonly received = 0;
  readonly unacknowledged = 0;
  readonly pace = { roundMs: undefined, sentPerSecond: undefined, receivedPerSecond: undefined };
  lost: CarrierLost | undefined;
  watcher: LinkWatcher = {};

  constructor(id: string, duplex: Duplex) {
    super(duplex);
    this.id = id;
  }

  watch(watcher: LinkWatcher): void {
    this.watcher = watcher;
  }

  override destroy(reason?: Error): void {
    super.destroy(reason);
    this.watcher.onClosed?.();
  }

  readonly acks = { hold() {}, release() {}, now() {} } as unknown as Link["acks"];

  probe(): void {}

  get suspended(): boolean {
    return this.lost !== undefined;
  }

  suspend(cause: CarrierLost): void {
    this.lost = cause;
    this.watcher.onSuspended?.(cause);
  }

  resume(): void {
    const { lost } = this;
    this.lost = undefined;
    this.watcher.onResumed?.({ suspendedMs: lost === undefined ? 0 : 1, lost, replayedBytes: 0 });
  }
}

interface Tunnel {
  readonly link: PairLink;
  readonly session: Session;
  readonly near: Duplex;
  readonly far: Duplex;
}

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly server?: string;
  readonly omitted?: number;
  readonly waitMs?: number;
  readonly attempt?: number;
  readonly streams?: number;
  readonly leavingMs?: number;
  readonly failedTries?: number;
  readonly fault?: string;
  readonly reason?: string;
}

/** An uplink, the server's ends of its links, and the attempts that wait for the test's answer. */
function uplink(t: TestContext) {
  const tunnels: Tunnel[] = [];
  const attempts: { accept(): Tunnel; refuse(error: unknown): void; readonly signal: AbortSignal }[] = [];
  const lines: Line[] = [];
  const counted = { connects: 0 };
  const failed: string[] = [];
  /** Results of resumes, and their causes where they are counted. */
  const resumes: string[] = [];
  /** Why links that are suspended find no new carrier. */
  const redialError = { error: new Error("no way") };
  const carriers: Carriers = {
    resumeTimeoutMs: 5_000,
    carrierAgeMs: () => Number.POSITIVE_INFINITY,
    redial: () => Promise.reject(redialError.error),
  };
  const learned: string[] = [];
  const metrics = Object.assign(new AgentMetrics({ processMetrics: false }), {
    pathLearned: (lesson: string) => void learned.push(lesson),
    uplinkConnected: () => void counted.connects++,
    attemptFailed: (label: string) => void failed.push(label),
  });
  Object.assign(metrics.links, {
    resumed: ({ lost }: ResumeReport) => void resumes.push(`resumed ${lost?.lossCause}`),
    resumeFailed: (result: string, cause: string) => void resumes.push(`${result} ${cause}`),
  });
  const context = contextOf({
    options: optionsOf({ maxWindow: 65_536, sessionBudget: 1_000_000, maxStreams: 10, drainTimeoutMs: 60_000 }),
    metrics,
    log: pino({ level: "debug" }, { write: (line) => lines.push(JSON.parse(line)) }),
  });

  const attempt = (owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> =>
    new Promise((resolve, reject) => {
      const accept = (): Tunnel => {
        const [near, far] = duplexPair();
        const session = new Session("server", new DuplexTransport(far), { onStream: () => {}, onClosed: () => {} });
        const link = new PairLink(`link-${tunnels.length + 1}`, near);
        const opened = { link: link as unknown as Link, key: LinkKey.random(), pipe: link, welcome: welcome() };
        resolve(new Connection(opened, owner, carriers, context));
        const tunnel = { link, session, near, far };
        tunnels.push(tunnel);
        return tunnel;
      };
      attempts.push({ accept, refuse: reject, signal });
    });
  const path = new Path({ maxCarrierAgeMs: 0 });
  const up = new Uplink("wss://s", path, { attempt, onState: () => {} }, context);
  t.after(() => {
    up.destroy(new Error("the test is over"));
    for (const { session } of tunnels) session.destroy();
  });
  /** Accepts the attempt that waits. */
  const accept = async (): Promise<Tunnel> => {
    const tunnel = attempts.at(-1)?.accept() ?? assert.fail();
    await until(() => up.connected, "connected");
    return tunnel;
  };
  const connect = (): Promise<Tunnel> => {
    up.start();
    return accept();
  };
  const refuse = async (error: Error): Promise<void> => {
    attempts.at(-1)?.refuse(error);
    await until(() => up.state.state === "waiting", "waiting");
  };
  const seen = { lines, counted, failed, resumes, learned };
  return { up, attempts, tunnels, redialError, path, accept, connect, refuse, ...seen };
}

/** A stream that the agent has accepted. */
async function open({ session }: Tunnel): Promise<Stream> {
  const stream = session.open().on("error", () => {});
  await until(() => stream.acknowledged, "the stream");
  return stream;
}

/** The first server has taken us, and said go-away after a second: another attempt is under way. */
async function sentAway({ connect, attempts }: ReturnType<typeof uplink>, pass: (ms: number) => void) {
  const first = await connect();
  pass(1_000);
  first.session.drain();
  await until(() => attempts.length === 2, "the next attempt");
  return first;
}

/** A clock that moves only when told to, and timers that do not move with it. Returns what lets time pass. */
function stoppedClock(t: TestContext): (ms: number) => void {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  return (ms) => {
    now += ms;
  };
}

const PLAIN = 30;
const DEBUG = 20;
const INFO = 30;
const WARN = 40;
const ERROR = 50;

test("waits after failures grow from base to cap, and each is one line", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, attempts, lines, counted, failed, refuse } = uplink(t);
  up.start();
  const eager = new Array<number>(7).fill(100);
  for (const waitMs of [...eager, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]) {
    const { length } = attempts;
    await refuse(Object.assign(new Error("connect ECONNREFUSED 10.0.0.1:443"), { code: "ECONNREFUSED" }));
    assert.equal(lines.at(-1)?.waitMs, waitMs);
    t.mock.timers.tick(waitMs - 1);
    assert.equal(attempts.length, length);
    t.mock.timers.tick(1);
    assert.equal(attempts.length, length + 1);
  }
  assert.deepEqual(lines.map(({ level, msg, reason }) => [level, msg, reason])[0], [
    WARN,
    "uplink attempt failed",
    "connect ECONNREFUSED 10.0.0.1:443",
  ]);
  assert.deepEqual([lines.length, failed.length, counted.connects], [15, 15, 0]);
});

test("one and the same failure is logged once a minute, another one at once, and all at debug level", async (t) => {
  stoppedClock(t);
  const { up, attempts, lines, accept, refuse } = uplink(t);
  const of = (...levels: number[]) =>
    lines.filter(({ level, msg }) => levels.includes(level) && msg === "uplink attempt failed").length;
  const again = async (): Promise<void> => {
    const { length } = attempts;
    t.mock.timers.tick(Number(lines.at(-1)?.waitMs));
    await until(() => attempts.length > length, "the next attempt");
  };
  const fail = async (reason: string): Promise<number> => {
    await refuse(new Error(reason));
    await again();
    return of(WARN);
  };
  up.start();
  assert.deepEqual([await fail("refused"), await fail("refused"), await fail("timed out")], [1, 1, 2]);
  assert.equal(await fail("refused"), 2);
  t.mock.timers.tick(60_000);
  assert.equal(await fail("refused"), 3);
  assert.equal(of(WARN, DEBUG), 5);
  const { near } = await accept();
  near.destroy(new Error("cut"));
  await until(() => up.state.state === "waiting", "waiting");
  await again();
  assert.equal(await fail("refused"), 4, "it is another outage");
});

test("a refused credential is said as an error with the server's sentence, and tried again slowly", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, lines, failed, refuse } = uplink(t);
  up.start();
  const refusals = [{ status: 401 }, { status: 403 }, { closeCode: CloseCode.unauthenticated }, { closeCode: 4403 }];
  for (const refusal of refusals) {
    await refuse(new LinkRefused({ ...refusal, reason: 'the certificate of "x" has expired' }));
    const line = lines.at(-1);
    assert.deepEqual([line?.level, line?.waitMs], [ERROR, 10_000]);
    assert.match(line?.reason ?? "", /the certificate of "x" has expired/);
    t.mock.timers.tick(10_000);
  }
  assert.deepEqual(failed, ["unauthenticated", "forbidden", "unauthenticated", "forbidden"]);
});

test("Retry-After is obeyed, with some spread behind it", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, lines, refuse } = uplink(t);
  up.start();
  await refuse(new LinkRefused({ status: 503, reason: "draining", retryAfterMs: 7_000 }));
  assert.deepEqual([lines[0]?.level, lines[0]?.waitMs], [WARN, 7_100]);
});

test("a lost link is replaced within the base wait, and losing it again and again makes the waits grow", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, lines, accept } = uplink(t);
  up.start();
  for (const waitMs of [...new Array<number>(7).fill(100), 200, 400]) {
    const { near } = await accept();
    near.destroy(new Error("cut"));
    await until(() => up.state.state === "waiting", "waiting");
    assert.deepEqual([lines.at(-1)?.msg, lines.at(-1)?.waitMs], ["uplink lost", waitMs]);
    t.mock.timers.tick(waitMs);
  }
});

test("a minute of health forgives the failures before it", async (t) => {
  const pass = stoppedClock(t);
  const { up, lines, accept, refuse } = uplink(t);
  up.start();
  for (const waitMs of [...new Array<number>(7).fill(100), 200, 400]) {
    await refuse(new Error("no"));
    t.mock.timers.tick(waitMs);
  }
  const { near } = await accept();
  pass(61_000);
  near.destroy(new Error("cut"));
  await until(() => up.state.state === "waiting", "waiting");
  assert.equal(lines.at(-1)?.waitMs, 100);
});

/** The ways in which a server ends a tunnel cleanly. */
const CLEAN_ENDS: Readonly<Record<string, (tunnel: Tunnel) => void>> = {
  "sends it away with a drain message": ({ link }) => link.watcher.onControl?.({ type: "drain", retryAfterMs: 0 }),
  "sends it away with go-away": ({ session }) => session.drain(),
  "sends go-away and closes": ({ session }) => void session.close(0),
  "closes without a word": ({ far }) => far.end(),
};

for (const [how, end] of Object.entries(CLEAN_ENDS)) {
  test(`a server that ${how}, time after time: the next attempt comes at once, as if nothing had failed`, async (t) => {
    const pass = stoppedClock(t);
    const { up, attempts, lines, accept, refuse } = uplink(t);
    up.start();
    for (let restart = 1; restart <= 5; restart++) {
      const { length } = attempts;
      const tunnel = await accept();
      pass(1_000);
      end(tunnel);
      await until(() => attempts.length === length + 1, "the next attempt, before any timer");
      const ended = lines.find(({ waitMs }) => waitMs !== undefined);
      assert.match(ended?.msg ?? "", /^(server asked the agent to reconnect|uplink closed by the server)$/);
      assert.deepEqual([ended?.level, ended?.waitMs], [PLAIN, 0]);
      tunnel.near.destroy();
      await until(() => [...up.connections()].length === 0, "the old link's end");
      // While it restarts: the waits of a first outage.
      for (let attempt = 1; attempt <= 9; attempt++) {
        await refuse(new Error("connect ECONNREFUSED"));
        assert.deepEqual(
          [lines.at(-1)?.attempt, lines.at(-1)?.waitMs],
          [attempt, Math.max(100, 100 * 2 ** (attempt - 7))],
        );
        t.mock.timers.tick(lines.at(-1)?.waitMs ?? 0);
      }
      lines.length = 0;
    }
  });

  test(`a server that ${how} at once, again and again, is not dialled in a loop`, async (t) => {
    stoppedClock(t);
    const { up, attempts, accept } = uplink(t);
    up.start();
    for (const most of [0, ...new Array<number>(6).fill(100), 200, 400]) {
      const { length } = attempts;
      const tunnel = await accept();
      end(tunnel);
      await until(() => !up.connected, "its end");
      assert.equal(up.state.state, most === 0 ? "connecting" : "waiting", "at once the first time only");
      t.mock.timers.tick(most);
      assert.equal(attempts.length, length + 1);
    }
  });
}

test("a server that is killed twice within a minute: the first outage does not lengthen the waits of the second", async (t) => {
  const pass = stoppedClock(t);
  const { up, attempts, lines, accept } = uplink(t);
  up.start();
  for (const kill of [1, 2]) {
    const tunnel = await accept();
    pass(20_000);
    tunnel.near.destroy(new Error("cut"));
    await until(() => up.state.state === "waiting", "waiting");
    assert.deepEqual([lines.at(-1)?.msg, lines.at(-1)?.waitMs], ["uplink lost", 100], `kill ${kill}`);
    for (let attempt = 1; attempt <= 10; attempt++) {
      t.mock.timers.tick(lines.at(-1)?.waitMs ?? 0);
      attempts.at(-1)?.refuse(new Error("connect ECONNREFUSED"));
      await until(() => lines.at(-1)?.attempt === kill + attempt, "one attempt more");
    }
    t.mock.timers.tick(lines.at(-1)?.waitMs ?? 0);
  }
});

test("a go-away that finds fault is a loss: it is no word of a server that restarts", async (t) => {
  const pass = stoppedClock(t);
  const { up, lines, connect } = uplink(t);
  const { far } = await connect();
  pass(1_000);
  far.write(header(FrameType.goAway, Flag.none, 0, GoAwayCode.protocolError));
  await until(() => up.state.state === "waiting", "waiting");
  assert.deepEqual([lines.at(-1)?.level, lines.at(-1)?.msg, lines.at(-1)?.waitMs], [WARN, "uplink lost", 100]);
  assert.match(lines.at(-1)?.reason ?? "", /go-away 1/);
});

test("sent away by the server: the new link stands before the old one ends, whose streams live on", async (t) => {
  const { up, attempts, lines, accept, connect } = uplink(t);
  const first = await connect();
  const stream = await open(first);

  first.link.watcher.onControl?.({ type: "drain", retryAfterMs: 5_000 });
  first.session.drain();
  assert.equal(attempts.length, 2, "the next attempt begins at once");
  assert.equal(up.connected, false);
  await accept();
  assert.equal([...up.connections()].length, 2);
  assert.equal(stream.destroyed, false);

  stream.resume().end();
  await until(() => [...up.connections()].length === 2, "still two: the agent's half is open");
  stream.destroy();
  await until(() => [...up.connections()].length === 1 && first.session.closed, "the old link has ended");
  assert.equal(up.connected, true);
  const [away, left] = ["server asked the agent to reconnect", "uplink left"].map((msg) =>
    lines.find((line) => line.msg === msg),
  );
  assert.deepEqual([away?.streams, away?.waitMs], [1, 0]);
  assert.equal(left?.reason, "closed cleanly");
  assert.ok(Number.isInteger(left?.leavingMs));
});

test("when no other server takes an agent that was sent away, it keeps away for as long as it was asked", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { lines, connect, refuse } = uplink(t);
  const first = await connect();
  first.link.watcher.onControl?.({ type: "drain", retryAfterMs: 5_000 });
  await refuse(new LinkRefused({ status: 503, reason: "draining" }));
  assert.equal(lines.at(-1)?.waitMs, 5_100);
});

test("what a server that shuts down does to the next attempts reads as that, and what another one does as ever", async (t) => {
  const pass = stoppedClock(t);
  const its = uplink(t);
  const { up, lines, refuse } = its;
  const fails = async (error: Error): Promise<readonly unknown[]> => {
    await refuse(error);
    const { msg, level, reason, fault } = lines.at(-1) ?? {};
    assert.equal(msg, "uplink attempt failed");
    assert.equal(up.failure, reason, "status says what the log does");
    assert.ok(level === WARN || fault === undefined, "nothing is to be explained");
    t.mock.timers.tick(60_000); // as long as a reason is not logged again
    return [level, reason];
  };
  const standing = { step: SECURING, host: "server", proxy: undefined } as const;
  const peerAction = () => dialFault(Object.assign(new Error("closed"), { code: "ECONNRESET" }), standing);
  const first = await sentAway(its, pass);
  const draining = new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  assert.deepEqual(await fails(draining), [INFO, "this server is shutting down"]);
  const goes = "the server that drained this agent accepts no connections any more";
  assert.deepEqual(await fails(peerAction()), [INFO, goes]);
  const wrong = new Error("something else");
  assert.deepEqual(await fails(wrong), [WARN, "something else"]);
  pass(60_000);
  await fails(wrong); // begun before
  assert.equal((await fails(peerAction()))[0], WARN, "it sent us away too long ago");
  assert.deepEqual(await fails(draining), [INFO, "this server is shutting down"]);
  first.near.destroy();
  await until(() => [...up.connections()].length === 0, "the old link's end");
  pass(500);
  t.mock.timers.tick(10_000);
  assert.deepEqual(await fails(peerAction()), [INFO, goes]);
  pass(11_000);
  assert.deepEqual(await fails(wrong), [WARN, "something else"]);
  assert.match(
    String((await fails(peerAction()))[1]),
    /^what answers there closed the connection in the TLS handshake/,
  );
});

test("the words of a server that drains are printable and short in the log, and the fault of an agent that none has drained is named", async (t) => {
  const rude = new LinkRefused({ closeCode: CloseCode.draining, reason: `\u001b[31m${"x".repeat(5_000)}` });
  for (const wasSentAway of [false, true]) {
    const its = uplink(t);
    if (wasSentAway) await sentAway(its, () => {});
    else its.up.start();
    its.attempts.at(-1)?.refuse(rude);
    const failure = () => its.lines.find(({ msg }) => msg === "uplink attempt failed");
    await until(() => failure() !== undefined, "the line");
    const { level, fault, reason = "" } = failure() ?? {};
    assert.deepEqual([level, fault], [INFO, wasSentAway ? undefined : "not_admitted"]);
    assert.ok(reason.length <= 1_200 && !reason.includes("\u001b"), reason);
  }
});

test("a server that drains is no warning to an agent that it has never taken, nor to a link that is to be resumed", async (t) => {
  const { up, attempts, tunnels, lines, redialError, accept } = uplink(t);
  const draining = new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  redialError.error = draining;
  up.start();
  attempts[0]?.refuse(draining);
  await until(() => attempts.length === 2, "the next attempt");
  await accept();
  tunnels[0]?.link.suspend(CUT);
  await until(() => lines.some(({ msg }) => msg === "uplink not resumed"), "a resume that fails");
  const levels = (wanted: string) => lines.filter(({ msg }) => msg === wanted).map(({ level }) => level);
  assert.deepEqual([levels("uplink attempt failed"), levels("uplink not resumed")], [[INFO], [INFO]]);
});

test("the pause that a server asked for ends with that server", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, attempts, connect, refuse } = uplink(t);
  const first = await connect();
  first.link.watcher.onControl?.({ type: "drain", retryAfterMs: 60_000 });
  await refuse(new LinkRefused({ status: 503, reason: "draining", retryAfterMs: 60_000 }));
  t.mock.timers.tick(1_000);
  assert.equal(attempts.length, 2);
  first.near.destroy();
  await until(() => [...up.connections()].length === 0, "the old link's end");
  t.mock.timers.tick(200);
  assert.equal(attempts.length, 3);
});

test("a server that has gone asks for no pause of the attempt that is under way", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, lines, connect, refuse } = uplink(t);
  const first = await connect();
  first.link.watcher.onControl?.({ type: "drain", retryAfterMs: 60_000 });
  first.near.destroy();
  await until(() => [...up.connections()].length === 0, "the old link's end");
  await refuse(new Error("connect ECONNREFUSED"));
  assert.equal(lines.at(-1)?.waitMs, 100);
});

test("what failed while the old server was leaving is not held against its successor", async (t) => {
  const pass = stoppedClock(t);
  const its = uplink(t);
  const { up, attempts, lines, refuse } = its;
  const first = await sentAway(its, pass);
  for (let i = 0; i < 15; i++) {
    await refuse(new Error("connect ECONNREFUSED"));
    if (i < 14) t.mock.timers.tick(lines.at(-1)?.waitMs ?? 0);
  }
  assert.equal(lines.at(-1)?.waitMs, 10_000);
  const { length } = attempts;
  first.near.destroy();
  await until(() => [...up.connections()].length === 0, "the old link's end");
  t.mock.timers.tick(100);
  assert.equal(attempts.length, length + 1);
  await refuse(new Error("connect ECONNREFUSED"));
  assert.deepEqual([lines.at(-1)?.attempt, lines.at(-1)?.waitMs], [1, 100]);
});

test("what is held against a new server stays when the old one has left at last", async (t) => {
  const pass = stoppedClock(t);
  const { up, attempts, lines, accept, connect } = uplink(t);
  const first = await connect();
  await open(first);
  pass(1_000);
  first.session.drain();
  await until(() => attempts.length === 2, "the next attempt");
  for (let i = 1; i <= 12; i++) {
    const { near } = await accept();
    near.destroy(new Error("cut"));
    await until(() => up.state.state === "waiting", "waiting");
    if (i < 12) t.mock.timers.tick(lines.at(-1)?.waitMs ?? 0);
  }
  assert.equal(lines.at(-1)?.waitMs, 3_200);
  const { length } = attempts;
  first.near.destroy();
  await until(() => [...up.connections()].length === 0, "the old link's end");
  t.mock.timers.tick(3_199);
  assert.equal(attempts.length, length);
});

const CUT = new CarrierLost("the connection was cut (ECONNRESET)", { lossCause: "reset", ageMs: 9, idleMs: 1 });

test("a connection that has lost its carrier is suspended, says why, and goes on as it was", async (t) => {
  const { up, attempts, lines, connect } = uplink(t);
  const { link } = await connect();
  link.suspend(CUT);
  assert.deepEqual([up.state.state, up.connected], ["suspended", false]);
  const line = lines.find(({ msg }) => msg === "uplink suspended");
  assert.deepEqual([line?.level, line?.reason], [WARN, CUT.message]);
  link.resume();
  assert.deepEqual([up.state.state, lines.at(-1)?.msg, attempts.length], ["connected", "uplink resumed", 1]);
});

test("an uplink knows why it is not connected, until it is", async (t) => {
  const { up, refuse, accept, attempts } = uplink(t);
  assert.equal(up.failure, undefined);
  up.start();
  await refuse(new Error("nobody listens"));
  assert.equal(up.failure, "nobody listens");
  up.hurry();
  await until(() => attempts.length === 2, "the next attempt");
  assert.equal(up.failure, "nobody listens", "while it is tried again");
  const { link } = await accept();
  assert.equal(up.failure, undefined);
  link.suspend(CUT);
  assert.equal(up.failure, CUT.message);
  link.resume();
  assert.equal(up.failure, undefined);
});

test("an uplink knows what its search for a carrier meets, and what has ended its connection", async (t) => {
  const { up, attempts, connect } = uplink(t);
  const { link } = await connect();
  up.changeCarriers();
  await new Promise(setImmediate);
  assert.equal(up.failure, undefined, "its connection stands");
  link.suspend(CUT);
  await until(() => up.failure === "no way", "the reason why there is no new carrier");
  link.destroy(new Error("the grace is over"));
  await until(() => up.failure === "the grace is over", "the reason of the loss");
  await until(() => attempts.length === 2, "the next attempt");
  assert.equal(up.failure, "the grace is over");
});

test("a path that cuts again and again fills no log, and at the end of the minute it says how often", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { lines, connect } = uplink(t);
  const { link } = await connect();
  for (let cut = 0; cut < 200; cut++) {
    link.suspend(CUT);
    link.resume();
  }
  const told = (msg: string) => lines.filter((line) => line.msg === msg && line.level >= INFO).length;
  assert.deepEqual([told("uplink suspended"), told("uplink resumed")], [10, 10]);
  t.mock.timers.tick(60_000);
  const { msg, server } = lines.find(({ omitted }) => omitted === 190) ?? assert.fail();
  assert.deepEqual(
    [msg?.split(";")[0], server],
    ["uplink suspended: 190 more in a minute were logged at debug level only", "wss://s"],
  );
});

test("a resume that fails for one reason again and again is one warning, and counted with what the carrier was lost by", async (t) => {
  const { up, lines, resumes, redialError, connect } = uplink(t);
  const { link } = await connect();
  const warnings = () => lines.filter(({ msg, level }) => msg === "uplink not resumed" && level === WARN);
  up.changeCarriers();
  await until(() => warnings().length === 1, "the first failure");
  link.suspend(CUT);
  await until(() => resumes.length >= 4, "more of them");
  assert.equal(warnings().length, 1);
  redialError.error = new LinkRefused({ closeCode: CloseCode.foreignLink, reason: "another server's" });
  await until(() => warnings().length === 2, "another reason");
  link.resume();
  assert.equal(resumes[0], "failed planned");
  assert.deepEqual([...new Set(resumes.slice(1))], ["failed reset", "foreign_link reset", "resumed reset"]);
  up.changeCarriers();
  await until(() => warnings().length === 3, "the first failure after a resume");
});

test("a resume that meets other servers in turn is one warning for each, and the end of the search says how often", async (t) => {
  const { lines, resumes, redialError, connect } = uplink(t);
  const { link } = await connect();
  const no = (reason: string) => new LinkRefused({ closeCode: CloseCode.badControl, reason });
  redialError.error = no("b");
  link.suspend(CUT);
  for (const reason of ["a", "b", "a", "b"]) {
    const { length } = resumes;
    await until(() => resumes.length > length, "a failure");
    redialError.error = no(reason);
  }
  link.resume();
  assert.equal(lines.filter(({ msg, level }) => msg === "uplink not resumed" && level === WARN).length, 2);
  const tries = resumes.filter((result) => !result.startsWith("resumed")).length;
  assert.equal(lines.find(({ msg }) => msg === "uplink resumed")?.failedTries, tries);
});

/** An uplink that has lost its server with a stream open, and is connected to another one behind the balancer. */
async function connectedElsewhere(t: TestContext) {
  const its = uplink(t);
  const { connect, accept, attempts, redialError } = its;
  redialError.error = new LinkRefused({ closeCode: CloseCode.foreignLink, reason: "another server's" });
  const old = await connect();
  const stream = await open(old);
  old.link.suspend(CUT);
  await until(() => attempts.length === 2, "an attempt for a new link");
  await accept();
  return { ...its, old, stream };
}

test("another server behind the balancer is connected to at once, while the old link still looks for its own", async (t) => {
  const { up, old, stream } = await connectedElsewhere(t);
  assert.equal([...up.connections()].length, 2);
  old.link.resume();
  assert.equal(stream.destroyed, false, "its streams go on");
  assert.equal(up.state.state, "connected");
});

test("closing does not wait for a link whose server is not to be found, though it has streams", async (t) => {
  const { up, lines } = await connectedElsewhere(t);
  void up.close(60_000);
  await until(() => lines.some(({ msg }) => msg === "uplink left"), "the end of the search");
  const left = lines.find(({ msg }) => msg === "uplink left");
  assert.deepEqual(
    [left?.reason, left?.failedTries],
    ["5 times in a row another server than the link's has answered", 5],
  );
});

test("an agent whose certificate has become another's leaves its link to the streams, and begins a new one at once", async (t) => {
  const { up, attempts, tunnels, lines, redialError, accept, connect, refuse } = uplink(t);
  redialError.error = new LinkRefused({ closeCode: CloseCode.linkOfAnother, reason: "another certificate" });
  const old = await connect();
  const stream = await open(old);
  up.changeCarriers();
  await until(() => attempts.length === 2, "an attempt for a new link");
  await until(() => old.session.draining, "go-away on the old one");
  assert.equal(stream.destroyed, false);
  // The id is the old link's as long as that one lives.
  await refuse(new LinkRefused({ closeCode: CloseCode.duplicate, reason: "belongs to another certificate" }));
  stream.destroy();
  await until(() => attempts.length === 3, "the next attempt");
  await accept();
  assert.deepEqual([tunnels.length, [...up.connections()].length], [2, 1]);
  assert.equal(lines.filter(({ msg }) => msg.startsWith("uplink begins anew")).length, 1);
});

test("an agent whose certificate has become another's, and that carries nothing, begins one new link", async (t) => {
  const { up, attempts, tunnels, lines, redialError, accept, connect } = uplink(t);
  redialError.error = new LinkRefused({ closeCode: CloseCode.linkOfAnother, reason: "another certificate" });
  await connect();
  up.changeCarriers();
  await until(() => attempts.length > 1 && lines.some(({ msg }) => msg === "uplink left"), "the old link to have left");
  assert.equal(attempts.length, 2);
  await accept();
  assert.deepEqual([tunnels.length, [...up.connections()].length], [2, 1]);
  assert.equal(
    lines.some(({ msg }) => msg === "uplink closed by the server"),
    false,
  );
});

test("a server that does not know the link any more is up: the next attempt comes at once", async (t) => {
  const { attempts, tunnels, lines, connect } = uplink(t);
  await connect();
  const refusal = new LinkRefused({ closeCode: CloseCode.unknownLink, reason: "no such link any more" });
  tunnels[0]?.near.destroy(refusal);
  await until(() => attempts.length === 2, "the next attempt");
  assert.deepEqual([lines.at(-1)?.msg, lines.at(-1)?.waitMs], ["uplink lost", 0]);
});

test("drain sends go-away and keeps what is open; close waits for it, then ends the link", async (t) => {
  const { up, attempts, counted, connect } = uplink(t);
  const tunnel = await connect();
  const { session } = tunnel;
  const stream = await open(tunnel);
  const closing = up.close(3_000);
  await until(() => session.draining, "go-away");
  assert.equal(up.state.state, "draining");
  assert.equal(stream.destroyed, false);
  stream.destroy();
  await closing;
  await until(() => session.closed, "the end of the link");
  assert.deepEqual([up.state.state, attempts.length, counted.connects], ["closed", 1, 1]);
});

test("streams that are left at the deadline of close are lost, and nothing is dialled any more", async (t) => {
  const { up, attempts, connect } = uplink(t);
  const stream = await open(await connect());
  const lost = new Promise((resolve) => stream.once("close", resolve));
  await up.close(30);
  await lost;
  assert.deepEqual([up.state.state, attempts.length], ["closed", 1]);
});

test("closing while it connects cancels the attempt, and a link that comes too late is ended", async (t) => {
  const { up, attempts } = uplink(t);
  up.start();
  await up.close(1_000);
  assert.equal(attempts[0]?.signal.aborted, true);
  const { near: late } = attempts[0]?.accept() ?? assert.fail();
  await until(() => late.destroyed, "the late link's end");
  assert.equal(up.state.state, "closed");
});

test("closing while it waits stops the timer", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { up, attempts, lines, refuse } = uplink(t);
  up.start();
  await refuse(new Error("no"));
  await up.close(1_000);
  t.mock.timers.tick(60_000);
  assert.equal(attempts.length, 1);
  assert.deepEqual([lines.at(-1)?.level, lines.at(-1)?.msg], [PLAIN, "uplink closed"]);
});

test("a cut after which nobody listened for a while is a restart, and teaches nothing of the path", async (t) => {
  for (const [error, lessons] of [
    [new RouteFault("refused", "the server refused the connection", { at: "s:443" }), []],
    [new Error("another fault"), ["age_limit"]],
  ] as const) {
    const { resumes, redialError, learned, connect } = uplink(t);
    redialError.error = error;
    const { link } = await connect();
    for (let cut = 1; cut <= 2; cut++) {
      const failedBefore = resumes.length;
      link.suspend(new CarrierLost("cut", { lossCause: "reset", ageMs: 60_000, idleMs: 15_000 }));
      await until(() => resumes.length > failedBefore, "a try that failed");
      link.resume();
    }
    assert.deepEqual(learned, lessons, error.message);
  }
});

test("the path teaches again once a link that a restart had cut has resumed", async (t) => {
  const { resumes, redialError, learned, connect } = uplink(t);
  const { link } = await connect();
  for (const error of [new RouteFault("refused", "no", { at: "s:443" }), new Error("one"), new Error("another")]) {
    redialError.error = error;
    const failedBefore = resumes.length;
    link.suspend(new CarrierLost("cut", { lossCause: "reset", ageMs: 60_000, idleMs: 15_000 }));
    await until(() => resumes.length > failedBefore, "a try that failed");
    link.resume();
  }
  assert.deepEqual(learned, ["age_limit"]);
});

test("what is learned of the path is one line and one count, and the present carrier stays", async (t) => {
  const { lines, resumes, path, learned, connect } = uplink(t);
  await connect();
  for (let i = 0; i < 3; i++) path.onLost({ lossCause: "fin", ageMs: 60_000, idleMs: 15_000 });
  const said = lines.filter(({ msg }) => msg === "path learned");
  assert.equal(said.length, 1);
  assert.match(said[0]?.reason ?? "", /^this path cuts connections that are older than 60 s: each is now replaced /);
  assert.deepEqual(learned, ["age_limit"]);
  for (let i = 0; i < 3; i++) path.onEcho(2_000);
  assert.deepEqual(learned, ["age_limit", "held_back"]);
  await new Promise((settled) => setImmediate(settled));
  assert.deepEqual(resumes, []);
});
