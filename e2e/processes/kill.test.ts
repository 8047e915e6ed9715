import assert from "node:assert/strict";
import { test } from "node:test";
import { createSite } from "../harness/binaries.ts";
import { peerEnd } from "../harness/peer-end.ts";
import type { ManagedProcess } from "../harness/processes.ts";
import { TARGETS } from "../harness/targets.ts";
import { takesConnections, waitFor, within } from "../harness/wait.ts";

/** What an end may take: the kernel reports it, and nobody else has to do anything for it. */
const AT_ONCE_MS = 15_000;
/** An agent that waits for its server tries once a second at least; the next longer wait is half a minute. */
const BACK_MS = 15_000;
/** A busy machine may hold up one restart, or two. */
const KILLS = 3;
/** So often the agent has found nobody before its server comes back: its waits have their whole length by then. */
const FAILED_RESUMES = 10;

test(`a server is killed: callers see the end at once, and of ${KILLS} restarts one at least has its agent back within ${BACK_MS / 1_000} s of the listener`, async (context) => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  let server = await site.startServer();
  try {
    // Each failed try is a line of debug, behind the first of its reason.
    await using agent = await site.startAgent({ logLevel: "debug" });
    const backMs: number[] = [];
    for (let kill = 1; kill <= KILLS && !backMs.some((ms) => ms < BACK_MS); kill++) {
      const callers = [await site.open("tls", echo.address), await site.open("uds", echo.address)];
      const failedBefore = lines(agent, "uplink not resumed").length;
      const ends = Promise.all(callers.map(({ socket }) => peerEnd(socket.resume())));
      server.signal("SIGKILL");
      await within(ends, AT_ONCE_MS, "the end of every caller");
      await within(server.exited, AT_ONCE_MS, "the end of the server");
      for (const { socket } of callers) socket.destroy();

      const failed = () => lines(agent, "uplink not resumed").length - failedBefore;
      await waitFor(() => failed() >= FAILED_RESUMES, {
        deadlineMs: 20_000,
        what: "an agent that has tried for a while",
      });
      const up = listening(site.agentPort);
      server = await site.startServer();
      const upAt = await up;
      const back = () => lines(agent, "uplink connected")[kill];
      const { time } = await waitFor(back, { deadlineMs: 20_000, what: "the agent to be back" });
      backMs.push(Date.parse(time) - upAt);
      await using again = await site.open("uds", echo.address);
      await again.send("back");
      assert.equal((await again.readBytes(4)).toString(), "back");
    }
    context.diagnostic(`back ${backMs.join(", ")} ms after the listener was up`);
    assert.ok(
      backMs.some((ms) => ms < BACK_MS),
      `${backMs} ms`,
    );
  } finally {
    await server.stop();
  }
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

interface Line {
  readonly msg: string;
  readonly time: string;
}

function lines(agent: ManagedProcess, msg: string): Line[] {
  return agent.log.map((line) => JSON.parse(line) as Line).filter((line) => line.msg === msg);
}

/** When somebody listens on the port, by the clock of the logs. */
async function listening(port: number): Promise<number> {
  await waitFor(() => takesConnections({ port }), {
    deadlineMs: 20_000,
    everyMs: 5,
    what: `a listener on port ${port}`,
  });
  return Date.now();
}
