import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { dialAgain } from "../shared/link/dial.ts";
import { LinkKey } from "../shared/link/proof.ts";
import { crlOf } from "../shared/pki/testing/certificates.ts";
import { CloseCode, LinkRefused } from "../shared/wire/handshake.ts";
import { tokenOf, tokensOf, trustTokens } from "./testing/insecure-port.ts";
import { dial, leadingTo, NOBODY } from "./testing/resuming-agent.ts";
import { dialOptions, HELLO, pki, start } from "./testing/server.ts";
import { type AgentWords, agentAt, dialOptionsOf, Tenants } from "./testing/tenants.ts";

test("a token is verified by both servers, and a link of one cluster is unknown to an agent of another", async () => {
  await using tenants = await Tenants.create(["blue", "green"]);
  await trustTokens(tenants, "blue");
  const [blue, green] = [tenants.get("blue"), tenants.get("green")];
  const callers = { uds: undefined }; // two servers on one machine cannot both have it
  await blue.write({ agents: tokensOf("blue"), callers });
  await green.write({ callers });
  const shared = { clusters: tenants.folder, linkGraceMs: 60_000, drainTimeoutMs: 50 };
  await using owner = await start({ ...shared, serverId: "srv-a" }, { owners: NOBODY });
  await using other = await start({ ...shared, serverId: "srv-b" }, { owners: leadingTo(owner) });

  const token = await tokenOf("blue");
  const { welcome, link } = await agentAt(owner, undefined, { at: blue, token });
  const key = LinkKey.parse(welcome.key);
  const again = (words: AgentWords) => {
    link.acks.hold();
    const resume = key.prove({ link: link.id, received: link.received });
    return dialAgain({ ...dialOptionsOf(other, { ...words, resume }), link: link.id });
  };
  const { carrier, resumed } = await again({ at: blue, token });
  assert.ok(key.isAnswer(link.id, resumed));
  carrier.destroy();

  const refused = again({ at: green, by: green.agent });
  await assert.rejects(refused, (error) => error instanceof LinkRefused && error.closeCode === CloseCode.unknownLink);
  link.destroy();
});

test("a certificate that the owner's CRL revokes resumes nothing, although the other server has no CRL yet", async () => {
  const crl = join(pki.folder, "carried.crl");
  const revoked = await pki.ca.issue({ cn: "konnectivity-agent", usage: "client" });
  await writeFile(crl, await crlOf(pki.ca, [revoked]));
  const brief = { linkGraceMs: 60_000, drainTimeoutMs: 50 };
  await using owner = await start({ ...brief, serverId: "srv-a", clientCrlFile: crl }, { owners: NOBODY });
  await using other = await start({ ...brief, serverId: "srv-b" }, { owners: leadingTo(owner) });
  const { carrier, welcome } = await dial(owner, HELLO);
  const resume = LinkKey.parse(welcome.key).prove({ link: welcome.link, received: 0 });
  const refused = dialAgain(dialOptions(other, { ...HELLO, resume }, revoked));
  await assert.rejects(refused, /the client certificate is revoked/);
  carrier.destroy();
});
