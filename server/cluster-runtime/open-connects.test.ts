import assert from "node:assert/strict";
import { test } from "node:test";
import { QueueNode } from "../../shared/basics/collections.ts";
import { type CallerProof, type OpenConnect, OpenConnects } from "./open-connects.ts";

function proofOf(fingerprint256: string): CallerProof {
  const peer = {
    o: [],
    dns: [],
    uri: [],
    serial: "01",
    fingerprint256,
    notAfter: new Date(),
    chain: [Buffer.alloc(1_000)],
  };
  return { kind: "certificate", peer };
}

class Connect implements OpenConnect {
  readonly place: QueueNode<OpenConnect> = new QueueNode(this);
  readonly address = "192.0.2.1";
  readonly targetCluster = undefined;
  readonly refuse = () => assert.fail();
}

test("five thousand CONNECTs of one certificate hold it once, and the last that leaves takes it along", () => {
  const connects = new OpenConnects();
  const many = Array.from({ length: 5_000 }, () => new Connect());
  for (const one of many) connects.join(proofOf("AA"), one);
  connects.join(proofOf("BB"), new Connect());
  assert.deepEqual(
    connects.all().map(({ connects: { size } }) => size),
    [5_000, 1],
  );
  const [admitted] = connects.all();
  for (const one of many) admitted?.leave(one);
  assert.deepEqual([connects.all().length, admitted?.proof], [1, undefined]);
});

test("credentials that come and go are not remembered for ever, and those in use are", () => {
  const connects = new OpenConnects();
  for (let index = 0; index < 100; index++) connects.join(proofOf(`stays ${index}`), new Connect());
  for (let index = 0; index < 1_000; index++) {
    const connect = new Connect();
    connects.join(proofOf(`goes ${index}`), connect).leave(connect);
  }
  assert.equal(connects.all().length, 100);
  assert.ok(connects.size <= 201, `${connects.size} are remembered`);
});
