import assert from "node:assert/strict";
import { test } from "node:test";
import { createSite } from "../harness/binaries.ts";
import { peerEnd } from "../harness/peer-end.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

/** Time until an end is noticed: the kernel reports it, and nothing else has to happen. */
const AT_ONCE_MS = 15_000;
/** An agent that waits for its server tries once a second at least; the next longer wait is half a minute. */
const BACK_MS = 15_000;
/** How often the agent has found nobody before its server comes back: its waits have their whole length by then. */
const FAILED_RESUMES = 10;

test(`a server is killed: callers see the end at once, and its agent is back within ${BACK_MS / 1_000} s of the next one`, async () => {
  await using echo = await TARGETS.echo();
  using site = await createSite();
  await using killed = await site.startServer();
  // Each failed try is a line of debug, behind the first of its reason.
  await using agent = await site.startAgent({ logLevel: "debug" });
  const callers = [await site.open("tls", echo.address), await site.open("uds", echo.address)];
  const ends = Promise.all(callers.map(({ socket }) => peerEnd(socket.resume())));
  killed.signal("SIGKILL");
  await within(ends, AT_ONCE_MS, "the end of every caller");
  await within(killed.exited, AT_ONCE_MS, "the end of the server");
  for (const { socket } of callers) socket.destroy();

  const lines = (msg: string) => agent.log.filter((line) => line.includes(`"msg":"${msg}"`));
  await waitFor(() => lines("uplink not resumed").length >= FAILED_RESUMES, {
    what: "an agent that has tried for a while",
  });
  await using _next = await site.startServer();
  await waitFor(() => lines("uplink connected").length === 2, { deadlineMs: BACK_MS, what: "the agent to be back" });
  await using again = await site.open("uds", echo.address);
  await again.send("back");
  assert.equal((await again.readBytes(4)).toString(), "back");
});
