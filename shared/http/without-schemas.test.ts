import assert from "node:assert/strict";
import { test } from "node:test";
import { fastify } from "fastify";
import { WITHOUT_SCHEMAS } from "./without-schemas.ts";

test("a route without a schema is served, and one with a schema fails the start", async () => {
  await using app = fastify(WITHOUT_SCHEMAS);
  app.get("/", () => ({ ok: true }));
  assert.equal((await app.inject("/")).body, '{"ok":true}');
  await using strict = fastify(WITHOUT_SCHEMAS);
  strict.get("/", { schema: { querystring: { type: "object" } } }, () => ({ ok: true }));
  await assert.rejects(async () => await strict.ready(), /no compiler of schemas/);
});
