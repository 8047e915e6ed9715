import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { VerificationSlots } from "./verifier.ts";

const RULES = { most: 3, sentence: "too many: the oldest was dropped" };

function enter(room: VerificationSlots, network: string) {
  const socket = new EventEmitter();
  let finish: (verdict: string) => void = () => {};
  const verified = new Promise<string>((resolve) => {
    finish = resolve;
  });
  const result = room.run({ socket, network }, RULES, () => verified).catch((error: Error) => error.message);
  return { socket, finish, result };
}

test("one too many drops the oldest of the network that has most, which learns why", async () => {
  const room = new VerificationSlots();
  const flood = [1, 2, 3].map(() => enter(room, "10.0.0.1"));
  const honest = enter(room, "10.0.0.2");
  assert.equal(await flood[0]?.result, RULES.sentence);
  assert.equal(room.size, 3);
  for (const { finish } of [honest, ...flood]) finish("ok");
  assert.deepEqual(await Promise.all([honest, ...flood.slice(1)].map(({ result }) => result)), ["ok", "ok", "ok"]);
  assert.equal(room.size, 0);
});

test("a closed peer frees its slot at once", () => {
  const room = new VerificationSlots();
  const { socket } = enter(room, "10.0.0.1");
  socket.emit("close");
  assert.equal(room.size, 0);
});

test("a token that is verified leaves nothing at its connection", async () => {
  const { socket, finish, result } = enter(new VerificationSlots(), "10.0.0.1");
  finish("ok");
  await result;
  assert.equal(socket.listenerCount("close"), 0);
});
