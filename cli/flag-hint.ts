import { flagNames } from "../shared/process/options.ts";

/** Flags that mean one thing in different commands. */
const SAME_MEANING: readonly (readonly string[])[] = [
  ["admin-port", "admin-server-port", "admin-address"],
  ["health-port", "health-server-port"],
  ["health-bind-address", "health-server-host"],
];

/** What this command calls a flag that it does not have, and another command has; `--name` or `undefined`. */
export function ownName(flag: string, known: readonly string[]): string | undefined {
  const name = flag.replace(/^-+/, "");
  const same = SAME_MEANING.find((names) => names.includes(name));
  const own = same?.find((each) => each !== name && known.includes(each));
  return own === undefined ? undefined : `--${own}`;
}

/** The sentence behind "There is no flag --x." where another command has it, or this one by another name. */
export async function flagHint(flag: string, known: readonly string[]): Promise<string | undefined> {
  const own = ownName(flag, known);
  if (own !== undefined) return `Here it is ${own}.`;
  const tables = await Promise.all([
    import("../server/options.ts").then(({ serverOptions }) => serverOptions),
    import("../agent/options.ts").then(({ agentOptions }) => agentOptions),
    import("../router/options.ts").then(({ routerOptions }) => routerOptions),
  ]);
  const name = flag.replace(/^-+/, "");
  const owners = tables.filter(({ options }) => flagNames(options).has(name)).map(({ command }) => command);
  return owners.length === 0 ? undefined : `It is one of culvert ${owners.join(" and of culvert ")}.`;
}
