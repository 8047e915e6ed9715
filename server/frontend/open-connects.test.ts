import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { CulvertError } from "../../shared/outcomes.ts";
import { type CallerProof, OpenConnect, OpenConnects } from "./open-connects.ts";

function proofOf(fingerprint256: string): CallerProof {
  const peer = { o: [], dns: [], uri: [], fingerprint256, notAfter: new Date(), chain: [Buffer.alloc(1_000)] };
  return { kind: "certificate", peer };
}

const open = (isPending = false) => {
  const socket = new PassThrough();
  return { socket, connect: new OpenConnect("192.0.2.1", socket, { refuse: () => isPending }) };
};

test("five thousand CONNECTs of one certificate hold it once, and the last that leaves takes it along", () => {
  const connects = new OpenConnects();
  const leave = Array.from({ length: 5_000 }, () => connects.add(proofOf("AA"), open().connect));
  connects.add(proofOf("BB"), open().connect);
  assert.deepEqual(
    connects.all().map(({ connects: { size } }) => size),
    [5_000, 1],
  );
  for (const one of leave) one();
  assert.equal(connects.all().length, 1);
});

test("who leaves twice takes nobody along who has come meanwhile", () => {
  const connects = new OpenConnects();
  const leave = connects.add(proofOf("AA"), open().connect);
  leave();
  connects.add(proofOf("AA"), open().connect);
  leave();
  assert.equal(connects.all().length, 1);
});

test("a CONNECT without an answer is refused, another one is reset; the first reason stays", () => {
  for (const isPending of [true, false]) {
    const { socket, connect } = open(isPending);
    connect.refuse(new CulvertError("forbidden", "first"));
    connect.refuse(new CulvertError("forbidden", "second"));
    assert.equal(socket.destroyed, !isPending);
    assert.equal(connect.refusal?.message, "first");
  }
});
