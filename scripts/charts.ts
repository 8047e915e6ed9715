/**
 * Writes what is generated in helm/*: values.schema.json, files/defaults.json, the tables of README.md and the versions
 * in Chart.yaml; with --check only says what is stale. It also fails where a template or an example names a flag, a
 * variable or an option that culvert does not have. scripts/charts/values-file.ts says how comments in values.yaml are
 * written.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { agentOptions } from "../agent/context/options.ts";
import { routerOptions } from "../router/options.ts";
import { serverOptions } from "../server/options/options.ts";
import type { OptionTable } from "../shared/config/options.ts";
import { parseChartOptions } from "./charts/chart-options.ts";
import { clusterDocumentsSchema } from "./charts/cluster-documents.ts";
import { defaultsOf } from "./charts/defaults.ts";
import { knownNames, unknownMentions } from "./charts/mentions.ts";
import { withValueTables } from "./charts/readme.ts";
import { ChartError, parseValues } from "./charts/values-file.ts";
import { valuesSchema } from "./charts/values-schema.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const TABLES = new Map(
  [serverOptions, agentOptions, routerOptions].map((table) => [table.command, table as unknown as OptionTable]),
);
/** Values whose schema comes from the code that reads them, by the chart's command. */
const DESCRIBED = new Map([["server", new Map([["clusters.documents", clusterDocumentsSchema()]])]]);
const check = process.argv.includes("--check");

const problems: string[] = [];
try {
  for (const table of TABLES.values()) {
    const folder = `helm/culvert-${table.command}`;
    if (existsSync(join(ROOT, folder, "Chart.yaml"))) chart(folder, table);
  }
  mentions();
} catch (error) {
  if (!(error instanceof ChartError)) throw error;
  problems.push(error.message);
}
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exitCode = 1;

function chart(folder: string, table: OptionTable): void {
  const file = (name: string): string => `${folder}/${name}`;
  const values = parseValues(read(file("values.yaml")), file("values.yaml"));
  const optionsFile = file("files/chart-options.yaml");
  const chartOptions = parseChartOptions(read(optionsFile), optionsFile, TABLES, values);
  const name = `culvert-${table.command}`;
  const described = DESCRIBED.get(table.command) ?? new Map();
  const schema = valuesSchema({ chart: name, values, table, tables: TABLES, chartOptions, described });
  generated(file("values.schema.json"), `${JSON.stringify(schema, null, 2)}\n`);
  generated(file("files/defaults.json"), `${JSON.stringify(defaultsOf(values), null, 2)}\n`);
  generated(file("README.md"), withValueTables(read(file("README.md")), file("README.md"), values));
  const { version } = JSON.parse(read("package.json")) as { readonly version: string };
  const manifest = read(file("Chart.yaml"));
  generated(
    file("Chart.yaml"),
    manifest.replace(/^(version|appVersion): .*$/gm, (_, key: string) => `${key}: ${version}`),
  );
}

function generated(path: string, text: string): void {
  if (!check) writeFileSync(join(ROOT, path), text);
  else if (!existsSync(join(ROOT, path)) || read(path) !== text)
    problems.push(`${path} is stale: run \`npm run docs\`.`);
}

function mentions(): void {
  const commands = filesUnder("cli").filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"));
  const known = knownNames(TABLES.values(), commands.map(read));
  const checked = filesUnder("helm").filter((path) =>
    /\/templates\/.*\.(yaml|tpl)$|\/values\.yaml$|\/examples\//.test(path),
  );
  for (const path of checked) problems.push(...unknownMentions(read(path), path, known));
}

function filesUnder(folder: string): string[] {
  const entries = readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => join(entry.parentPath, entry.name).slice(ROOT.length)).sort();
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}
