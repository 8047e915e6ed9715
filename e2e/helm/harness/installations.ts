import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { CHARTS, type Chart, type Installation, type Values } from "./helm.ts";
import { ODD_AGENTS } from "./odd-agents.ts";
import { ODD_SERVERS } from "./odd-servers.ts";

const EXAMPLES = join(CHARTS, "examples");
const OF_AGENT = /-agent\.yaml$/;

/** The files of helm/examples: `NAME.yaml` has values of culvert-server, and `NAME-agent.yaml` of culvert-agent. */
export function examples(): Installation[] {
  const names = existsSync(EXAMPLES) ? readdirSync(EXAMPLES).filter((name) => name.endsWith(".yaml")) : [];
  return names.sort().map((name) => ({
    name: name.replace(/\.yaml$/, ""),
    chart: OF_AGENT.test(name) ? "culvert-agent" : "culvert-server",
    values: parse(readFileSync(join(EXAMPLES, name), "utf8")) ?? {},
  }));
}

/** Switches set together that no example sets. */
export function oddInstallations(): Installation[] {
  return [...named("culvert-server", ODD_SERVERS), ...named("culvert-agent", ODD_AGENTS)];
}

function named(chart: Chart, sets: Readonly<Record<string, Values>>): Installation[] {
  return Object.entries(sets).map(([name, values]) => ({ name: `${chart}: ${name}`, chart, values }));
}

/** One of them, by its name. */
export function odd(name: string): Installation {
  const found = oddInstallations().find((installation) => installation.name === name);
  if (found === undefined) throw new Error(`there is no odd set of values with the name "${name}"`);
  return found;
}
