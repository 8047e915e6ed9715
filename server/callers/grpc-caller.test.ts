import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { GrpcCall } from "../../shared/konnectivity/grpc-call.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { GrpcCaller } from "./grpc-caller.ts";
import { CallOfTest } from "./testing/grpc-call.ts";

test("a caller whose credential was revoked since the handshake gets the sentence, and UNAUTHENTICATED", async (t) => {
  const server = createServer();
  t.after(() => server.close());
  server.on("stream", (stream) => {
    const context = { options: { headerTimeoutMs: 60_000, establishedGapMs: 0 } } as never;
    const onDial = () => caller.refuse(new CulvertError("unauthenticated", "the certificate is 100 % revoked"));
    const caller = new GrpcCaller(new GrpcCall(stream), {} as never, context, onDial);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const call = new CallOfTest(connect((server.address() as AddressInfo).port, "127.0.0.1"));
  call.dial();
  const { error } = await call.next("dialResponse");
  assert.equal(error, "the certificate is 100 % revoked");
  assert.equal(await call.status(), `16 ${error}`);
  call.cut();
});
