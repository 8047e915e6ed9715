import type { IncomingMessage } from "node:http";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import { valuesOf } from "../listeners/request-reader.ts";
import type { Answer } from "./refusal.ts";

/** RFC 9112 §3.2: more or fewer than one are a fault, and whoever reads the other one sees another cluster. */
const NOT_ONE: Answer = {
  status: 400,
  sentence: "a request needs one Host here: by it the cluster is found",
  headers: {},
  level: "info",
};

/** When a cluster that is at its limit may have room again, ms. */
const LIMITED_RETRY_MS = 1_000;

/**
 * The door that a request's Host leads to for a client from `address`, by the names that stand for it in a ClientHello;
 * or what its sender hears. As there, the name only opens a door: who may pass is for the credential to say.
 */
export function doorByHost(
  { rawHeaders }: Pick<IncomingMessage, "rawHeaders">,
  address: string,
  doors: VirtualHosts<ClusterVirtualHost>,
): ClusterVirtualHost | CulvertError | Answer {
  const [host, ...others] = valuesOf(rawHeaders, "host");
  if (host === undefined || host === "" || others.length > 0) return NOT_ONE;
  const name = nameIn(host);
  const door = doors.single ?? doors.find(name);
  if (door === undefined) {
    return {
      status: 421,
      sentence: `no cluster has the name "${printable(name, 100)}" (Host)`,
      headers: {},
      level: "info",
    };
  }
  // What is inside may be a TLS handshake, too.
  const budget = door.handshakeBudget(address);
  if (budget.take()) return door;
  return new CulvertError("limited", budget.exhausted ?? "the cluster is at its limit", {
    retryAfterMs: LIMITED_RETRY_MS,
  });
}

/** Host without its port, as names in a ClientHello are written. */
export function nameIn(host: string): string {
  return host.replace(/:\d*$/, "");
}
