import assert from "node:assert/strict";
import { test } from "node:test";
import { BehindMiddlebox } from "../harness/behind-middlebox.ts";
import type { MiddleboxBehaviour } from "../harness/middlebox.ts";
import { answers, edits, holdsBack } from "../harness/middlebox-behaviour.ts";
import { waitFor } from "../harness/wait.ts";

// Faults of middleboxes in the upgrade: each has its word in one line of the log for each attempt and in the metric,
// and when the fault ends the agent connects by itself.

const SPOILED = 2;
const HASTY = { handshakeTimeoutMs: 1_000, syncIntervalMs: 20, syncIntervalCapMs: 40 } as const;

const page = (status: string, title: string, more = "") => {
  const body = `<!DOCTYPE html><html><head><title>${title}</title></head><body>…</body></html>`;
  return `HTTP/1.1 ${status}\r\nContent-Type: text/html\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;
};
const without = (name: string) => (head: string) => head.replace(new RegExp(`^${name}:.*\r\n`, "im"), "");
const withHeader = (line: string) => (head: string) => head.replace(/\r\n\r\n$/, `\r\n${line}\r\n\r\n`);
const instead = (from: RegExp, to: string) => (head: string) => head.replace(from, to);
const stripped = (head: string) => without("Connection")(without("Upgrade")(head));
const answer = (edit: (head: string) => string) => () => edits({ answer: edit });

const IN_THE_WAY: Readonly<Record<string, { habit: () => MiddleboxBehaviour; word: string; says: RegExp }>> = {
  "takes the upgrade out of the request": {
    habit: () => edits({ request: stripped }),
    ...{ word: "upgrade_stripped", says: /^the upgrade did not reach the server \(4\d\d / },
  },
  "shows a page of 200": {
    habit: () => answers(page("200 OK", "Guest Wi-Fi")),
    ...{ word: "web_page", says: /\(200 OK, page "Guest Wi-Fi"\)/ },
  },
  "shows a page of 403": {
    habit: () => answers(page("403 Forbidden", "Blocked by policy", "Via: 1.1 gw (squid/5.7)\r\n")),
    ...{ word: "web_page", says: /\(403 Forbidden, page "Blocked by policy", via "1\.1 gw \(squid\/5\.7\)"\)/ },
  },
  "redirects to a login": {
    habit: () => answers("HTTP/1.1 302 Found\r\nLocation: https://portal.corp/login\r\nContent-Length: 0\r\n\r\n"),
    ...{ word: "redirected", says: /to "https:\/\/portal\.corp\/login"/ },
  },
  "wants credentials of its own": {
    habit: () => answers("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"),
    ...{ word: "web_page", says: /^something in between wants a login \(407 Proxy Authentication Required\)/ },
  },
  "has nobody behind it": {
    habit: () => answers(page("503 Service Unavailable", "No backend")),
    ...{ word: "gateway", says: /\(503 Service Unavailable, page "No backend"\)/ },
  },
  "answers with another accept": {
    habit: answer(instead(/^(Sec-WebSocket-Accept): .*$/im, "$1: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
    ...{ word: "upgrade_stripped", says: /Invalid Sec-WebSocket-Accept header\): something in between has changed it/ },
  },
  "answers with another subprotocol": {
    habit: answer(instead(/^(Sec-WebSocket-Protocol): .*$/im, "$1: chat")),
    ...{ word: "upgrade_stripped", says: /Server sent an invalid subprotocol/ },
  },
  "answers with compression that nobody has offered": {
    habit: answer(withHeader("Sec-WebSocket-Extensions: permessage-deflate")),
    ...{ word: "upgrade_stripped", says: /extension was requested\)/ },
  },
  "answers with Connection: close": {
    habit: answer(instead(/^Connection: .*$/im, "Connection: close")),
    ...{ word: "upgrade_stripped", says: /\(101, Upgrade: websocket, Connection: close\)/ },
  },
  "answers without the upgrade's headers": {
    habit: answer(stripped),
    ...{ word: "upgrade_stripped", says: /\(101, Upgrade: none, Connection: none\)/ },
  },
  "writes a body behind the answer": {
    habit: answer((head) => `${withHeader("Content-Length: 5")(head)}hello`),
    ...{ word: "upgrade_stripped", says: /Invalid WebSocket frame/ },
  },
  "does not pass the request on": {
    habit: () => holdsBack("from the agent", {}),
    ...{ word: "no_answer", says: /timed out waiting for the upgrade: TLS is up, but no answer came/ },
  },
  "holds back what comes behind the answer": {
    habit: () => {
      const held = holdsBack("from the server", {});
      let passed = false;
      return {
        ...held,
        fromServer: (bytes, sides) => {
          if (passed) held.fromServer(bytes, sides);
          else sides.toAgent(bytes);
          passed = true;
        },
      };
    },
    ...{ word: "held_back", says: /timed out waiting for welcome: the upgrade was answered, .* must not buffer/ },
  },
};

for (const [what, { habit, word, says }] of Object.entries(IN_THE_WAY)) {
  test(`a middlebox that ${what} is "${word}", and the agent comes up when it lets go`, async (t) => {
    // Its CA is the one that the agent knows: each attempt is one connection.
    const behind = await BehindMiddlebox.start(t, {
      ...{ innerTls: false, agent: HASTY },
      habit: (connection) => (connection <= SPOILED ? habit() : undefined),
    });
    const agent = await behind.startAgent();
    const failed = behind.said("uplink attempt failed");
    assert.equal(failed.length, SPOILED, "one line for each attempt");
    for (const { reason } of failed) assert.match(String(reason), says);
    assert.equal(behind.said("uplink refused: the server does not accept this agent").length, 0);
    const scrape = await behind.scrape();
    assert.equal(scrape.value("culvert_agent_uplink_failures_total", { reason: word }), SPOILED);
    await behind.transfers(1, 100_000);
    await agent.close();
  });
}

const HARMLESS: Readonly<Record<string, () => MiddleboxBehaviour>> = {
  "takes the subprotocol out of the answer": answer(without("Sec-WebSocket-Protocol")),
  "writes its name into request and answer": () =>
    edits({
      request: withHeader("Via: 1.1 corp\r\nX-Forwarded-For: 10.0.0.1"),
      answer: withHeader("Via: 1.1 corp\r\nX-Cache: MISS\r\nDate: Sat, 21 Nov 2026 20:00:00 GMT"),
    }),
  "offers compression in the agent's name": () =>
    edits({ request: withHeader("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits") }),
  "answers in HTTP/1.0": answer(instead(/^HTTP\/1\.1/, "HTTP/1.0")),
  "answers with Connection: close, Upgrade": answer(instead(/^Connection: .*$/im, "Connection: close, Upgrade")),
  "answers in other letters": answer(
    instead(/^Upgrade: .*\r\nConnection: .*$/im, "UPGRADE: WebSocket\r\nconnection: upgrade"),
  ),
  "answers with an empty body": answer(withHeader("Content-Length: 0")),
  "says 100 Continue first": answer((head) => `HTTP/1.1 100 Continue\r\n\r\n${head}`),
  "says 103 Early Hints first": answer((head) => `HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\n${head}`),
};

for (const [what, habit] of Object.entries(HARMLESS)) {
  test(`a middlebox that ${what} does no harm`, async (t) => {
    for (const innerTls of [true, false]) {
      const behind = await BehindMiddlebox.start(t, { innerTls, habit });
      await behind.startAgent();
      await behind.transfers(2, 300_000);
      assert.equal(behind.said("uplink attempt failed").length, 0);
      assert.equal(behind.said("uplink suspended").length, 0);
    }
  });
}

test("behind a captive portal the agent tries on, and is there when somebody has logged in", async (t) => {
  let loggedIn = false;
  const portal = [
    "HTTP/1.1 302 Found\r\nLocation: https://portal.corp/login\r\nContent-Length: 0\r\n\r\n",
    page("200 OK", "Log in"),
    "HTTP/1.1 511 Network Authentication Required\r\nContent-Length: 0\r\n\r\n",
  ];
  const behind = await BehindMiddlebox.start(t, {
    agent: HASTY,
    habit: (connection) => (loggedIn ? undefined : answers(portal[connection % portal.length] as string)),
  });
  const agent = await behind.startAgent({}, { wait: false });
  await waitFor(() => behind.said("uplink attempt failed").length >= 6);
  assert.equal(behind.said("uplink refused: the server does not accept this agent").length, 0);
  loggedIn = true;
  await agent.whenConnected();
  await behind.transfers(2, 300_000);
  const scrape = await behind.scrape();
  for (const reason of ["redirected", "web_page"]) {
    assert.ok(scrape.value("culvert_agent_uplink_failures_total", { reason }) > 0, reason);
  }
});
