import assert from "node:assert/strict";
import { test } from "node:test";
import type { InnerPipe } from "../../shared/link/inner-pipe.ts";
import { HELLO } from "../../shared/link/testing/ends.ts";
import { sendHello } from "./via-middlebox.ts";

test("a hello whose time is over before it is said waits for no answer", async () => {
  let end: (reason: Error) => void = () => {};
  const over = new Promise<never>((_, reject) => {
    end = reject;
  });
  over.catch(() => {});
  const pipe = { sendMessage: () => {}, readMessage: () => over, destroy: end } as Partial<InnerPipe> as InnerPipe;
  const said = sendHello(pipe, { hello: HELLO, credentials: {} as never }, AbortSignal.abort());
  const silence = new Promise((resolve) => setImmediate(resolve, "no end"));
  await assert.rejects(Promise.race([said, silence]), /no welcome came/);
});
