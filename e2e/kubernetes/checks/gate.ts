import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { CONTROL_PLANE, NODE, PORTS, SERVICES } from "../world/addresses.ts";
import { CULVERT_LANES } from "../world/lanes.ts";
import type { Namespace } from "../world/namespace.ts";

/** Before anything else is believed: what the other checks reach, they reach through culvert. */
export const NO_DIRECT_WAY: Check = {
  name: "no direct way from the control plane to the node",
  deadlineMs: 30_000,
  lanes: CULVERT_LANES,
  run: noDirectWay,
};

/** Once the server is there: the node reaches its port for agents, and none of its others. */
export const AGENTS_ONLY: Check = {
  name: "no way from the node but to the port for agents",
  deadlineMs: 30_000,
  lanes: CULVERT_LANES,
  run: agentsOnly,
};

async function noDirectWay({ world }: Stage): Promise<Seen> {
  const { controlPlane, node } = world.network;
  const hosts = [NODE.ipv4, `[${NODE.ipv6}]`, SERVICES.web];
  return await closed(
    hosts.map((host) => `https://${host}:${PORTS.kubelet}/`),
    { opened: node, closed: controlPlane },
  );
}

async function agentsOnly({ world }: Stage): Promise<Seen> {
  const { controlPlane, node } = world.network;
  return await closed([`http://${CONTROL_PLANE.ipv4}:${PORTS.serverHealth}/healthz`], {
    opened: controlPlane,
    closed: node,
  });
}

/** A URL that does not answer proves little unless it answers elsewhere. */
async function closed(urls: readonly string[], sides: { opened: Namespace; closed: Namespace }): Promise<Seen> {
  for (const url of urls) {
    expect(await answers(sides.opened, url, PATIENT_SECONDS), `${url} to answer on its own side`, "nothing");
  }
  const passing = await Promise.all(
    urls.map(async (url) => ((await answers(sides.closed, url, DIAL_SECONDS)) ? [url] : [])),
  );
  expect(passing.flat().length === 0, "no way through", passing.flat().join(", "));
  return { printed: `${urls.join(", ")}: no answer within ${DIAL_SECONDS} s` };
}

const DIAL_SECONDS = 2;
const PATIENT_SECONDS = 10;

async function answers(from: Namespace, url: string, seconds: number): Promise<boolean> {
  return (await from.run(["curl", "-sk", "-m", String(seconds), "-o", "/dev/null", url])).code === 0;
}
