import { nearest } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import type { RawValue, RawValues } from "./flags.ts";
import { envName, type OptionTable } from "./options.ts";

/**
 * What Kubernetes sets in every pod for a Service called like us: `CULVERT_SERVER_AGENT_PORT=tcp://10.96.0.7:8091`
 * for a Service "culvert-server-agent" collides with the name of an option, its value never with a port.
 */
const SERVICE_LINK = /^(?:tcp|udp|sctp):\/\//;

/** Names of the other variables that Kubernetes sets for a Service. */
const SERVICE_VARIABLE = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/;

/** The values of a table's environment variables. An empty one counts as not set. */
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

/** A sentence for each variable that has the table's prefix, names no option, and does not come from Kubernetes. */
export function unknownVariables(table: OptionTable, env: NodeJS.ProcessEnv): string[] {
  const prefix = `${table.envPrefix}_`;
  const names = Object.entries(table.options).map(([key, row]) => envName(table.envPrefix, key, row));
  const known = new Set([...names, `${prefix}CONFIG`].map((name) => name.slice(prefix.length)));
  return Object.entries(env).flatMap(([name, text = ""]) => {
    const word = name.slice(prefix.length);
    if (!name.startsWith(prefix) || known.has(word) || text === "") return [];
    if (SERVICE_VARIABLE.test(name) || SERVICE_LINK.test(text)) return [];
    // Without the prefix: what is the same in all names would make distant words near.
    const guess = nearest(word, known);
    const cure = guess === undefined ? "docs/options.md has all names" : `did you mean ${prefix}${guess}?`;
    return [`${printable(name, 100)} is not known: ${cure}`];
  });
}
