import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkKey } from "../../shared/link/proof.ts";
import { CloseCode } from "../../shared/wire/handshake.ts";
import { Links } from "./links.ts";

test("a link of an inner TLS, whose key alone proves the agent, is not resumed once the agent's certificate has expired", () => {
  const links = new Links("srv");
  const key = LinkKey.random();
  const agents = LinkKey.parse(key.text);
  const entry = links.issue("blue", { agentId: "a", instance: "1", identity: "CN=a" }, key);
  entry.link = { received: 0, canResumeAt: () => true, offer: () => assert.fail("no carrier comes") };
  const resume = () => links.resume("blue", agents.prove({ link: entry.id, received: 0 }), undefined);
  entry.goodUntil = new Date(Date.now() + 3_600_000);
  assert.equal(resume().entry, entry);
  entry.goodUntil = new Date(Date.now() - 1);
  assert.throws(resume, { closeCode: CloseCode.unknownLink, message: /certificate .* has expired/ });
});
