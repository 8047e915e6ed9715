import assert from "node:assert/strict";
import { test } from "node:test";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { admit, type Candidate } from "./admit.ts";

const candidate: Candidate = { agentId: "a", instance: "1", identity: "CN=agent" };
const roomy = { serverId: "srv-1", cluster: "default", agents: 1, maxAgents: 2 };
const full = { ...roomy, agents: 2 };

const TABLE: ReadonlyArray<
  readonly [
    sentence: string,
    holder: Candidate | undefined,
    room: typeof roomy,
    closeCode: number | undefined,
    says: RegExp,
  ]
> = [
  ["a new agent id is admitted while there is room", undefined, roomy, undefined, /^$/],
  ["a new agent id is limited when the cluster is full", undefined, full, CloseCode.limited, /limit \(--max-agents\)/],
  ["a restarted agent is admitted", { ...candidate, instance: "0" }, roomy, undefined, /^$/],
  ["a restarted agent needs no further room", { ...candidate, instance: "0" }, full, undefined, /^$/],
  [
    "a second link of one process is refused, and told where the first is",
    candidate,
    roomy,
    CloseCode.alreadyConnected,
    /already_connected.*"srv-1"/,
  ],
  [
    "an id of another identity is a duplicate",
    { ...candidate, identity: "CN=other" },
    roomy,
    CloseCode.duplicate,
    /another certificate/,
  ],
  [
    "another identity is a duplicate even after a restart",
    { agentId: "a", instance: "0", identity: "CN=other" },
    roomy,
    CloseCode.duplicate,
    /another certificate/,
  ],
];

for (const [sentence, holder, room, closeCode, says] of TABLE) {
  test(sentence, () => {
    if (closeCode === undefined) return admit(candidate, holder, room);
    assert.throws(
      () => admit(candidate, holder, room),
      (error) => error instanceof LinkRefused && error.closeCode === closeCode && says.test(error.reason),
    );
  });
}
