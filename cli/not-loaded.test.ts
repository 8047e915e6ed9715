import assert from "node:assert/strict";
import { test } from "node:test";
import { loadedWith } from "../shared/runtime/testing/loaded-with.ts";

const SELDOM = [
  "@bufbuild/protobuf",
  "@bufbuild/protobuf/codegenv2",
  "@nats-io/transport-node",
  "@peculiar/x509",
  "@opentelemetry/api",
  "@opentelemetry/core",
  "@opentelemetry/exporter-trace-otlp-proto",
  "@opentelemetry/resources",
  "@opentelemetry/sdk-trace",
  "kerberos",
  "pino-pretty",
  "quickjs-wasi",
];

for (const [file, unused] of [
  ["cli/command-line.ts", [...SELDOM, "fastify", "jose", "pino", "prom-client", "ws", "yaml", "zod"]],
  ["server/server.ts", [...SELDOM, "fastify", "jose", "yaml"]],
  ["sidecars/socks5-proxy.ts", [...SELDOM, "dns-packet", "fastify", "jose", "yaml"]],
  ["sidecars/http-proxy.ts", [...SELDOM, "dns-packet", "fastify", "jose", "yaml"]],
  ["agent/agent.ts", [...SELDOM, "fastify", "jose", "yaml"]],
] as const) {
  test(`no package that only some processes use, or use later, is loaded with ${file}`, () => {
    const loaded = loadedWith(file);
    assert.ok(loaded.length > 3, "the walk has found the files");
    assert.deepEqual(
      loaded.filter((name) => unused.includes(name)),
      [],
    );
  });
}
