import assert from "node:assert/strict";
import { test } from "node:test";
import { read } from "./testing/sample-table.ts";

test("a variable that names no option is a warning with the nearest name", async () => {
  const { problems, warnings } = await read([], {
    CULVERT_SAMPLE_DIAL_TIMEOT: "1s",
    CULVERT_SAMPLE_XYLOPHONE: "secret",
    "CULVERT_SAMPLE_A\u001b[2J": "x",
  });
  assert.deepEqual(problems, []);
  assert.deepEqual(warnings, [
    "CULVERT_SAMPLE_DIAL_TIMEOT is not known: did you mean CULVERT_SAMPLE_DIAL_TIMEOUT?",
    "CULVERT_SAMPLE_XYLOPHONE is not known: docs/options.md has all names",
    "CULVERT_SAMPLE_A [2J is not known: docs/options.md has all names",
  ]);
});

test("what names an option, is empty or belongs to another command is no warning", async () => {
  const env = {
    CULVERT_SAMPLE_COUNT: "4",
    CULVERT_SAMPLE_CONFIG: "",
    PROXY_SAMPLE_ID: "a",
    CULVERT_SAMPLE_EMPTY: "",
    CULVERT_OTHER_COUNT: "4",
    CULVERT_SAMPLER_COUNT: "4",
  };
  assert.deepEqual((await read([], env)).warnings, []);
});

for (const service of ["CULVERT_SAMPLE", "CULVERT_SAMPLE_AGENTS", "CULVERT_SAMPLE_AGENT"]) {
  test(`what Kubernetes sets for a Service is no warning and no value: ${service}`, async () => {
    const env = {
      [`${service}_SERVICE_HOST`]: "10.96.0.7",
      [`${service}_SERVICE_PORT`]: "8091",
      [`${service}_SERVICE_PORT_AGENTS_TLS`]: "8091",
      [`${service}_PORT`]: "tcp://10.96.0.7:8091",
      [`${service}_PORT_8091_TCP`]: "tcp://10.96.0.7:8091",
      [`${service}_PORT_8091_TCP_PROTO`]: "tcp",
      [`${service}_PORT_8091_TCP_PORT`]: "8091",
      [`${service}_PORT_8091_TCP_ADDR`]: "10.96.0.7",
      [`${service}_PORT_53_UDP`]: "udp://10.96.0.7:53",
    };
    const { problems, warnings, sources } = await read([], env);
    assert.deepEqual([problems, warnings, [...sources.keys()]], [[], [], []]);
  });
}
