import { parse } from "yaml";
import { flagNames, type OptionTable } from "../../shared/config/options.ts";
import { ChartError, type Value } from "./values-file.ts";

/** By command: the options that a chart sets itself, and the value to set in their place. */
export type ChartOptions = ReadonlyMap<string, ReadonlyMap<string, string>>;

/** files/chart-options.yaml of a chart: `{server: {health-port: ports.health}}`. Options and values have to exist. */
export function parseChartOptions(
  text: string,
  file: string,
  tables: ReadonlyMap<string, OptionTable>,
  values: readonly Value[],
): ChartOptions {
  const commands = parse(text) as Readonly<Record<string, Readonly<Record<string, string>>>>;
  const paths = new Set(pathsOf(values));
  const all = new Map<string, ReadonlyMap<string, string>>();
  for (const [command, places] of Object.entries(commands)) {
    const table = tables.get(command);
    if (table === undefined) throw new ChartError(`${file}: culvert has no command ${command} with options.`);
    const known = flagNames(table.options);
    for (const [option, place] of Object.entries(places)) {
      if (!known.has(option)) throw new ChartError(`${file}: culvert ${command} has no option ${option}.`);
      if (!paths.has(place))
        throw new ChartError(`${file}: ${option} names the value ${place}, which values.yaml does not have.`);
    }
    all.set(command, new Map(Object.entries(places)));
  }
  return all;
}

function pathsOf(values: readonly Value[]): string[] {
  return values.flatMap(({ path, children }) => [path, ...pathsOf(children)]);
}
