import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import type { ProvenResume } from "./control.ts";
import { LinkKey } from "./proof.ts";

/** The two ends of one inner TLS. */
function ends(): { readonly agent: LinkKey; readonly server: LinkKey } {
  const key = randomBytes(32);
  return { agent: new LinkKey(key), server: new LinkKey(key) };
}

test("a proof is good for what it says, until it has been used", () => {
  const { agent, server } = ends();
  const resume = agent.prove({ link: "s/1", received: 700 });
  assert.equal(server.accepts(resume), true);
  assert.equal(server.accepts(resume), true, "a refusal for another reason has not used it up");
  server.spend(resume);
  assert.equal(server.accepts(resume), false);
});

test("a later try is good although an earlier one was never seen, and then the earlier one is not", () => {
  const { agent, server } = ends();
  const withheld = agent.prove({ link: "s/1", received: 700 });
  const later = agent.prove({ link: "s/1", received: 800 });
  server.spend(later);
  assert.equal(server.accepts(withheld), false);
  assert.equal(server.accepts(agent.prove({ link: "s/1", received: 800 })), true);
});

test("nothing in it can be changed without the key", () => {
  const { agent, server } = ends();
  const resume = agent.prove({ link: "s/1", received: 700 });
  const changes: Partial<ProvenResume>[] = [
    { link: "s/2" },
    { counter: resume.counter + 1 },
    { received: 701 },
    { proof: randomBytes(32).toString("base64url") },
    { proof: "" },
  ];
  for (const change of changes) assert.equal(server.accepts({ ...resume, ...change }), false, JSON.stringify(change));
  assert.equal(ends().server.accepts(resume), false, "another key");
});

test("an answer proves the server and the last attempt, and is no echo of the proof", () => {
  const { agent, server } = ends();
  const before = agent.prove({ link: "s/1", received: 700 });
  const old = { received: 40, proof: server.answer(before, 40) };
  assert.equal(agent.isAnswer("s/1", old), true);
  const resume = agent.prove({ link: "s/1", received: 700 });
  assert.equal(agent.isAnswer("s/1", old), false);
  assert.equal(agent.isAnswer("s/1", { received: 40, proof: server.answer(resume, 40) }), true);
  assert.equal(agent.isAnswer("s/1", { received: 41, proof: server.answer(resume, 40) }), false);
  assert.equal(agent.isAnswer("s/1", { received: resume.received, proof: resume.proof }), false);
});
