import type { RawValue, RawValues } from "./flags.ts";
import { envName, type OptionTable } from "./options.ts";

/**
 * What Kubernetes sets in every pod for a Service called like us: `CULVERT_SERVER_AGENT_PORT=tcp://10.96.0.7:8091`
 * for a Service "culvert-server-agent" collides with the name of an option, its value never with a port.
 */
const SERVICE_LINK = /^(?:tcp|udp|sctp):\/\//;

/** The values of a table's environment variables. An empty one counts as not set; unknown ones are not ours. */
export function readEnvironment(table: OptionTable, env: NodeJS.ProcessEnv): RawValues {
  const rows = new Map<string, RawValue>();
  for (const [key, row] of Object.entries(table.options)) {
    for (const name of [envName(table.envPrefix, key, row), row.environment]) {
      const text = name === undefined ? undefined : env[name];
      if (name === undefined || text === undefined || text === "" || SERVICE_LINK.test(text)) continue;
      rows.set(key, { as: name, texts: [text] });
      break;
    }
  }
  return { rows, foreign: new Map() };
}
