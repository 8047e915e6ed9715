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
  const many = Array.from({ length: 5_000 }, () => open().connect);
  for (const one of many) connects.add(proofOf("AA"), one);
  connects.add(proofOf("BB"), open().connect);
  assert.deepEqual(
    connects.all().map(({ connects: { size } }) => size),
    [5_000, 1],
  );
  const [admitted] = connects.all();
  for (const one of many) one.over();
  assert.deepEqual([connects.all().length, admitted?.proof], [1, undefined]);
});

test("credentials that come and go are not remembered for ever, and those in use are", () => {
  const connects = new OpenConnects();
  for (let index = 0; index < 100; index++) connects.add(proofOf(`stays ${index}`), open().connect);
  for (let index = 0; index < 1_000; index++) {
    const { connect } = open();
    connects.add(proofOf(`goes ${index}`), connect);
    connect.over();
  }
  assert.equal(connects.all().length, 100);
  assert.ok(connects.size <= 201, `${connects.size} are remembered`);
});

test("a CONNECT without an answer is refused, another one is reset; the first reason stays", () => {
  for (const isPending of [true, false]) {
    const { socket, connect } = open(isPending);
    new OpenConnects().add(proofOf("AA"), connect);
    connect.refuse(new CulvertError("forbidden", "first"));
    connect.refuse(new CulvertError("forbidden", "second"));
    assert.equal(socket.destroyed, !isPending);
    assert.equal(connect.refusal?.message, "first");
  }
  const { socket, connect } = open();
  connect.refuse(new CulvertError("forbidden", "it is over"));
  assert.equal(socket.destroyed, false);
});
