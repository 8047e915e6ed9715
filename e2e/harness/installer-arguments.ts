import { ARGUMENT_LISTS } from "../../cli/testing/konnectivity.ts";

const NO_FILE = "\0";

/**
 * The arguments with which an installer starts Konnectivity, but for `values` of flags that name files, ports and
 * hosts. A port that the list leaves to its default is added.
 */
export function installerArguments(installer: string, values: Readonly<Record<string, string | number>>): string[] {
  const list = ARGUMENT_LISTS.find((each) => each.installer === installer);
  if (!list) throw new Error(`there is no list of ${installer}`);
  const given = list.arguments(NO_FILE);
  const names = given.map((argument, i) => flagOf(argument) ?? flagOf(given[i - 1] ?? ""));
  const args = given.map((argument, i) => {
    const name = names[i] ?? "";
    const joined = argument.startsWith(`--${name}=`);
    const own = joined ? argument.slice(name.length + 3) : argument;
    const value = own.startsWith("-") ? own : String(values[name] ?? own);
    if (value === NO_FILE) throw new Error(`--${name} of ${installer} has no file`);
    return joined ? `--${name}=${value}` : value;
  });
  const ports = Object.entries(values).filter(([name, value]) => typeof value === "number" && !names.includes(name));
  return [...args, ...ports.map(([name, value]) => `--${name}=${value}`)];
}

function flagOf(argument: string): string | undefined {
  return /^--([\w-]+)/.exec(argument)?.[1];
}
