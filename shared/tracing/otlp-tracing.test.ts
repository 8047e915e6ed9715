import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { listening } from "../basics/testing/wait.ts";
import { OtlpTracing } from "./otlp-tracing.ts";

const SERVICE = { name: "culvert-server", id: "a" };
const LOG = { warn() {} };
const SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

test("a receiver that takes nothing costs no more than the spans that wait; the others are counted as lost", async (t) => {
  let requests = 0;
  const server = createServer(() => requests++); // it never answers
  t.after(() => server.closeAllConnections());
  const otlpEndpoint = `http://127.0.0.1:${await listening(t, server)}`;
  const tracing = new OtlpTracing({ otlpEndpoint, traceSamplingRatePerMillion: 1_000_000 }, SERVICE, LOG);
  for (let i = 0; i < 10_000; i++) tracing.begin("CONNECT", 0, undefined).end(1, {});
  // The first batch is on its way.
  assert.ok(tracing.counts.lost >= 10_000 - 2_048 - 512, `${tracing.counts.lost} were lost`);
  assert.equal(tracing.counts.sent, 0);
  assert.ok(requests <= 1);
});

test("a caller decides for its CONNECT; of the others as many are kept as the rate says", async () => {
  const kept = (traceSamplingRatePerMillion: number, parent?: string) => {
    const tracing = new OtlpTracing({ otlpEndpoint: "http://127.0.0.1:9", traceSamplingRatePerMillion }, SERVICE, LOG);
    let count = 0;
    for (let i = 0; i < 4_000; i++) if (tracing.begin("CONNECT", 0, parent).isKept) count++;
    return count;
  };
  assert.equal(kept(0, SAMPLED), 4_000);
  assert.equal(kept(1_000_000, SAMPLED.replace(/01$/, "00")), 0);
  assert.equal(kept(0), 0);
  const half = kept(500_000);
  assert.ok(half > 1_700 && half < 2_300, `${half} of 4,000`);
});

test("a span goes on with its parent's trace, and its parts with it", () => {
  const options = { otlpEndpoint: "http://127.0.0.1:9", traceSamplingRatePerMillion: 0 };
  const span = new OtlpTracing(options, SERVICE, LOG).begin("CONNECT", 0, SAMPLED);
  const part = span.part("pick", 0, 1);
  const [, trace, own] = span.traceparent.split("-");
  assert.equal(trace, "4bf92f3577b34da6a3ce929d0e0e4736");
  assert.notEqual(own, "00f067aa0ba902b7");
  assert.match(part.traceparent, new RegExp(`^00-${trace}-(?!${own})[0-9a-f]{16}-01$`));
});
