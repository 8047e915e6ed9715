import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { waitFor, within } from "../harness/wait.ts";
import { CARRIERS, tcp } from "./carriers.ts";
import { GoListener, goMissing, type Role, spawnOnPipe } from "./go-peer.ts";
import { GoSession } from "./go-session.ts";

const HEAVY = process.env["CI"] === "true";
const MIB = 1024 * 1024;
const ROLES: readonly Role[] = ["client", "server"];

describe("hashicorp/yamux", { skip: goMissing ?? false }, () => {
  let go: GoListener;
  before(async () => {
    go = await GoListener.start();
  });
  after(() => go[Symbol.dispose]());

  for (const carrier of CARRIERS) {
    for (const role of ROLES) {
      test(`over ${carrier.name}, Go as the ${role}: many streams opened by both ends are echoed whole`, async () => {
        using peer = new GoSession(await carrier.open(go, role), role);
        const fromGo = peer.ask(`open ${HEAVY ? 100 : 30} 60000`);
        const ours = Array.from({ length: HEAVY ? 100 : 30 }, async (_, count) => {
          const sent = randomBytes(count * 4_000);
          const stream = peer.stream("echo");
          stream.end(sent);
          assert.ok((await peer.read(stream)).equals(sent), `stream ${stream.id}`);
        });
        await within(Promise.all(ours), 15_000, "our streams");
        assert.equal(await within(fromGo, 15_000, "Go's streams"), "ok");
        await waitFor(() => peer.session.streamCount === 0);
      });

      const megabytes = carrier.bulkBytes / MIB;
      test(`over ${carrier.name}, Go as the ${role}: ${megabytes} MiB each way at once arrive whole`, async () => {
        using peer = new GoSession(await carrier.open(go, role), role);
        const down = peer.readHashed(peer.stream(`source ${carrier.bulkBytes}`));
        const up = peer.stream("sink");
        const hash = createHash("sha256");
        const chunk = randomBytes(99_991);
        for (let left = carrier.bulkBytes; left > 0; left -= chunk.length) {
          const part = chunk.subarray(0, Math.min(left, chunk.length));
          hash.update(part);
          if (!up.write(part)) await once(up, "drain");
        }
        // Half-close: the answer comes behind our end.
        up.end();
        assert.equal((await peer.read(up)).toString(), `${carrier.bulkBytes} ${hash.digest("hex")}`);
        assert.equal(await within(down, 30_000, "Go's bytes"), carrier.bulkBytes);
      });
    }
  }

  for (const role of ROLES) {
    describe(`Go as the ${role}`, () => {
      test("Go's end is seen while our direction stays open", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const stream = peer.stream("source 0");
        assert.equal((await peer.read(stream)).length, 64);
        assert.equal(stream.writable, true);
        stream.end();
        await waitFor(() => stream.destroyed);
      });

      test("a reset of ours is a reset there", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const stream = peer.stream("hold it");
        await waitFor(() => stream.acknowledged);
        stream.destroy();
        assert.equal(await peer.ask("result it"), "connection reset");
      });

      test("a reset of Go's is ECONNRESET here", async () => {
        using peer = new GoSession(await spawnOnPipe(role, "-close-timeout", "100ms"), role);
        const stream = peer.stream("linger");
        stream.resume();
        const [error] = (await within(once(stream, "error"), 5_000, "the reset")) as [NodeJS.ErrnoException];
        assert.equal(error.code, "ECONNRESET");
      });

      test("pings are answered both ways", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        assert.ok((await peer.session.ping()) < 5_000);
        assert.equal(await peer.ask("ping"), "true <nil>");
      });

      test("Go's go-away leaves open streams alone and ends opening", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const open = peer.stream("echo");
        assert.equal(await peer.ask("goaway"), "<nil>");
        await waitFor(() => peer.session.draining);
        assert.throws(() => peer.session.open(), { reason: "go_away" });
        open.end("still here");
        assert.equal((await peer.read(open)).toString(), "still here");
      });

      test("our go-away leaves open streams alone and ends Go's opening", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const open = peer.stream("echo");
        const asking = peer.stream("open 1 10", { end: false });
        await waitFor(() => open.acknowledged && asking.acknowledged);
        peer.session.drain();
        asking.end("\n");
        assert.equal((await peer.read(asking)).toString(), "remote end is not accepting connections");
        open.end("still here");
        assert.equal((await peer.read(open)).toString(), "still here");
      });

      test("when Go closes the session, our streams fail with ESESSION", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const stream = peer.stream("hold it");
        const failed = once(stream, "error");
        peer.stream("close");
        assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ESESSION");
        await peer.closed;
      });

      test("when we close, Go's end of the pipe goes as well and nothing is lost before", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const stream = peer.stream("echo");
        stream.end("last words");
        const answer = peer.read(stream);
        await peer.session.close(5_000);
        assert.equal((await answer).toString(), "last words");
        assert.equal(await peer.closed, undefined);
        await waitFor(() => peer.carrier.destroyed);
      });

      test("Go opens more streams at once than its backlog of unacknowledged ones", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        assert.equal(await within(peer.ask("open 600 100"), 10_000, "600 streams"), "ok");
      });

      test("a reader of ours that stops holds Go at one window, and nobody else", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const stuck = peer.stream(`source ${4 * MIB}`);
        await waitFor(() => stuck.held >= 256 * 1024);
        for (let count = 0; count < 20; count++) {
          const echo = peer.stream("echo");
          echo.end("lively");
          assert.equal((await peer.read(echo)).toString(), "lively");
        }
        assert.equal(stuck.held, 256 * 1024);
        assert.equal(await peer.readHashed(stuck), 4 * MIB);
      });

      test("slow readers at both ends: windows close and open a hundred times, no byte is lost", async () => {
        using peer = new GoSession(await tcp(go, role), role);
        const slow = peer.stream("slow");
        const sent = randomBytes(8 * MIB);
        slow.end(sent);
        const source = peer.stream(`source ${2 * MIB}`);
        const ticker = setInterval(() => (source.isPaused() ? source.resume() : source.pause()), 2);
        assert.equal(await peer.readHashed(source), 2 * MIB);
        clearInterval(ticker);
        const expected = createHash("sha256").update(sent).digest("hex");
        assert.equal((await peer.read(slow)).toString(), `${sent.length} ${expected}`);
      });

      test("a first window above the spec's is understood by Go, and Go's by us", async () => {
        using peer = new GoSession(await tcp(go, role), role, { initialWindow: 2 * MIB });
        const stuck = peer.stream(`source ${4 * MIB}`);
        await waitFor(() => stuck.held === 2 * MIB);
        assert.equal(await peer.readHashed(stuck), 4 * MIB);
        assert.equal(await peer.ask("open 3 1000000"), "ok");
      });
    });
  }
});
