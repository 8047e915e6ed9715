import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { settingsOrUsage } from "../harness/settings-or-usage.ts";
import { readSettings, USAGE } from "./settings.ts";
import { soak } from "./soak.ts";

/** A terminal's Ctrl-C may reach this process twice, by npm as well. */
const SAME_MS = 1_000;

/**
 * `npm run soak`: mixed traffic over a disturbed path for a long time, and at the end nothing is lost and nothing kept.
 */
async function main(): Promise<void> {
  const { minutes, seed, build, logs } = settingsOrUsage(readSettings, USAGE);
  if (build) {
    const root = fileURLToPath(new URL("../..", import.meta.url));
    execFileSync("npm", ["run", "-s", "build"], { cwd: root, stdio: "inherit" });
  }
  console.log(`${minutes} minutes, seed ${seed}; Ctrl-C ends the run early, with its verdict`);
  const failed = await soak({ minutes, seed, logs, say: (line) => console.log(line), signal: interrupted() });
  if (failed.length === 0) {
    console.log("Nothing was lost, and descriptors and memory are where they were.");
  } else {
    console.error(
      `The soak failed (again with --seed ${seed}; --logs FOLDER keeps the logs):\n${failed.map((each) => `- ${each}`).join("\n")}`,
    );
    process.exitCode = 1;
  }
}

/** Aborted by the first signal; a later one ends this process, and with it all others. */
function interrupted(): AbortSignal {
  const controller = new AbortController();
  let at = Number.NEGATIVE_INFINITY;
  const onSignal = () => {
    if (!controller.signal.aborted) {
      at = performance.now();
      controller.abort();
      console.log("ending cleanly; once more ends at once");
    } else if (performance.now() - at > SAME_MS) {
      process.exit(130);
    }
  };
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
  return controller.signal;
}

await main();
