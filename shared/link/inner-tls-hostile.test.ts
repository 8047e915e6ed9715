import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import tls from "node:tls";
import { judgePeer } from "../net/identity.ts";
import { LinkDuplex } from "./inner-pipe.ts";
import { InnerServers } from "./inner-tls.ts";
import { type End, link, pki } from "./testing-inner.ts";

const TIMEOUT_MS = 5_000;
const INNER_PROTOCOL = "culvert-inner/1";

/** A client that is no agent of ours: by `change`, it does otherwise. */
function client(end: End, change: tls.ConnectionOptions): tls.TLSSocket {
  const socket = tls.connect({
    ...{ socket: new LinkDuplex(end, 1 << 20), servername: "server.example", ALPNProtocols: [INNER_PROTOCOL] },
    ...change,
  });
  return socket.on("error", () => {});
}

test("who brings the session of an agent's handshake, and no certificate, is not taken for that agent", async (t) => {
  const { authority, agent, material } = await pki();
  const servers = new InnerServers();
  let session: Buffer | undefined;
  const meet = async (shown: tls.ConnectionOptions) => {
    const ends = link();
    t.after(() => ends.agent.destroy());
    const accepted = servers.accept(ends.server, material, TIMEOUT_MS);
    const near = client(ends.agent, { ...shown, ca: authority.cert });
    near.on("session", (given) => {
      session = given;
    });
    const far = await accepted;
    far.pipe.sendWords({ type: "renewed" });
    await once(near, "data"); // a session would have come before
    return judgePeer(far.socket);
  };
  assert.equal((await meet(agent)).identity?.cn, "agent");
  assert.match((await meet(session === undefined ? {} : { session })).refusal ?? "", /no client certificate was sent/);
});
