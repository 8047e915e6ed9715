import { waitFor } from "../../harness/wait.ts";
import type { Culvert } from "../world/culvert.ts";

/**
 * Waits until both ends agree that there is nothing but established connections: no CONNECT, dial or stream that
 * belongs to nobody. (How many are established is kube-apiserver's affair: it keeps some for the next request.)
 */
export async function nothingLeftBehind(culvert: Culvert): Promise<void> {
  let seen = "";
  const settled = async () => {
    const [server, agents] = await Promise.all([culvert.scrapeServer(), culvert.agentLoad()]);
    const pending = {
      connects: server.sum("culvert_server_pending_opens", {}),
      dials: agents.dials,
    };
    const open = {
      established: server.sum("culvert_server_established_connections", {}),
      connections: server.sum("culvert_server_connections", {}),
      streams: server.sum("culvert_server_streams", {}),
      agentStreams: agents.streams,
    };
    seen = JSON.stringify({ pending, open });
    return Object.values(pending).every((n) => n === 0) && new Set(Object.values(open)).size === 1;
  };
  await waitFor(settled, { deadlineMs: 15_000, everyMs: 100, what: "nothing left behind" }).catch((error: Error) => {
    throw new Error(`${error.message}: ${seen}`);
  });
}
