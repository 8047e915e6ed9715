import { diagnose, doctorOptions } from "../agent/doctor/doctor.ts";
import { helpText, printConfig } from "../shared/config/flags.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { FROM_SERVER, runFromServer } from "./doctor-from-server.ts";
import { headOf, headText, reportJson, reportTo } from "./doctor-report.ts";
import { flagHint } from "./service.ts";

/**
 * `culvert doctor`: goes an agent's way and says who is in it. Exit code 0: nobody; 1: somebody; 2: the options cannot
 * be used.
 */
export async function runDoctor(
  argv: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  print: (text: string) => void = (text) => process.stdout.write(text),
): Promise<void> {
  if (argv.includes(FROM_SERVER)) {
    return runFromServer(
      argv.filter((word) => word !== FROM_SERVER),
      print,
    );
  }
  const { values, problems, warnings, sources, ...asked } = await readOptions(doctorOptions, {
    argv,
    env,
    hint: flagHint,
  });
  if (asked.help) {
    print(helpText(doctorOptions));
    return;
  }
  if (asked.printConfig) print(printConfig(doctorOptions, values, sources));
  const head = headOf(argv);
  for (const sentence of [...problems, ...warnings]) process.stderr.write(`culvert doctor: ${sentence}\n`);
  if (problems.length > 0) {
    process.stderr.write("See: culvert doctor --help\n");
    if (values.json) print(reportJson({ ...head, healthy: false, problems, servers: [] }));
    process.exitCode = 2;
    return;
  }
  if (asked.printConfig) return;
  if (!values.json) print(headText(head));
  const report = await diagnose(values, env, values.json ? SILENT : reportTo(print));
  if (values.json) print(reportJson({ ...head, ...report }));
  if (!report.healthy) process.exitCode = 1;
}

const SILENT = { onServer: () => {}, onStep: () => {}, onVerdict: () => {} };
