import assert from "node:assert/strict";
import { test } from "node:test";
import { EndpointSlice, serversIn } from "./endpoint-slices.ts";

const pod = (uid: string, address: string, conditions: object = { ready: true }) => ({
  ...{ addresses: [address], conditions },
  targetRef: { kind: "Pod", uid },
});
const slice = (...endpoints: object[]) =>
  EndpointSlice.parse({ metadata: { name: "s" }, addressType: "IPv4", endpoints, ports: [] });

test("servers are the endpoints of all slices that are ready and do not end, each pod once", () => {
  const both = [slice(pod("1", "10.0.0.1"), pod("2", "10.0.0.2")), slice(pod("1", "fd00::1"), pod("2", "fd00::2"))];
  for (const [slices, servers, why] of [
    [both, 2, "IPv4 and IPv6 of one pod"],
    [[slice(pod("1", "10.0.0.1")), slice(pod("2", "10.0.0.2"))], 2, "more than one slice"],
    [[slice(pod("1", "10.0.0.1"), pod("2", "10.0.0.2", { ready: false }))], 1, "one is not ready"],
    [[slice(pod("1", "10.0.0.1", {}), pod("2", "10.0.0.2", { ready: null }))], 2, "no condition is ready"],
    [
      [slice(pod("1", "10.0.0.1"), pod("2", "10.0.0.2", { ready: true, serving: true, terminating: true }))],
      1,
      "publishNotReadyAddresses calls a pod ready that ends",
    ],
    [[slice({ addresses: ["10.0.0.1"] }, { addresses: ["10.0.0.2"] })], 2, "endpoints without a pod"],
    [[EndpointSlice.parse({ metadata: { name: "s" }, endpoints: null })], 0, "the slice of a Service without pods"],
    [[], 0, "no slice"],
  ] as const) {
    assert.equal(serversIn(slices), servers, why);
  }
});
