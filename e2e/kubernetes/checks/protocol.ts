import { waitFor } from "../../harness/wait.ts";
import { expect, type Stage } from "../check.ts";

/** The protocol of kubectl for exec and port-forward. */
export type Protocol = "SPDY" | "WebSocket";
/** As kube-apiserver calls the subresources. */
type Verb = "exec" | "portforward";

const ENVIRONMENTS = {
  /** Its default since 1.31. */
  WebSocket: {},
  SPDY: { KUBECTL_REMOTE_COMMAND_WEBSOCKETS: "false", KUBECTL_PORT_FORWARD_WEBSOCKETS: "false" },
} as const satisfies Record<Protocol, Record<string, string>>;

/** From this minor on kube-apiserver hands WebSockets on to a node that declares to take them. */
const WEBSOCKETS_REACH_NODES = 36;

/** Has kubectl ask for the verb once, and holds against it what kube-apiserver and the node were asked. */
export async function spoken<T>(
  stage: Stage,
  verb: Verb,
  protocol: Protocol,
  act: (env: Readonly<Record<string, string>>) => Promise<T>,
): Promise<{ readonly result: T; readonly way: string }> {
  const before = await requests(stage, verb);
  const result = await act(ENVIRONMENTS[protocol]);
  const [wanted, way] = expected(stage, protocol);
  let seen = "";
  const asWanted = async () => {
    const after = await requests(stage, verb);
    const more = after.map((count, i) => count - (before[i] ?? 0));
    seen = `${more[0]} SPDY and ${more[1]} WebSocket at the node, ${more[2]} translated by kube-apiserver`;
    return more.every((count, i) => count === wanted[i]);
  };
  // A line of a log may come a moment later.
  await waitFor(asWanted, { deadlineMs: 5_000, everyMs: 100 }).catch((error) => {
    expect(false, way, seen || error.message);
  });
  return { result, way };
}

type Requests = readonly [nodeSpdy: number, nodeWebSocket: number, translated: number];

function expected({ world }: Stage, protocol: Protocol): [Requests, string] {
  const minor = Number(world.assets.version.split(".")[1]);
  if (protocol === "SPDY") return [[1, 0, 0], "SPDY all the way"];
  if (minor >= WEBSOCKETS_REACH_NODES) return [[0, 1, 0], "WebSocket all the way"];
  return [[1, 0, 1], "WebSocket to kube-apiserver, SPDY to the node"];
}

async function requests({ world, kubeApiserver }: Stage, verb: Verb): Promise<Requests> {
  const node = await world.node.scrape();
  const atNode = (protocol: string) => node.value("node_stand_in_streaming_requests_total", { verb, protocol });
  return [atNode("spdy"), atNode("websocket"), kubeApiserver.log.filter(tellsOfTranslation).length];
}

/** It has counters for this, too, but does not register them. */
function tellsOfTranslation(line: string): boolean {
  return line.includes("request handled by translator proxy");
}
