import { spawn } from "node:child_process";
import { once } from "node:events";

/** Says to a test file that it is in a network of its own. */
const INSIDE = "CULVERT_E2E_OWN_NETWORK";

/** Settings of the kernel for one network namespace, by their names in sysctl(8). */
type NetworkSettings = Readonly<Record<string, string>>;

/**
 * Runs the present test file once more in a network namespace with a loopback of its own, in which the kernel has these
 * settings. True: this is that run, and the file has to declare its tests. The other one has ended with the same
 * result, and the test runner has read the results as if they were its own.
 */
export async function isInOwnNetwork(settings: NetworkSettings): Promise<boolean> {
  if (process.env[INSIDE] !== undefined) return true;
  const lines = Object.entries(settings).map(([name, value]) => `sysctl -qw ${name}='${value}'`);
  const script = ["ip link set lo up", ...lines, 'exec "$0" "$@"'].join(" && ");
  const again = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  const child = spawn("unshare", ["--net", "sh", "-c", script, ...again], {
    stdio: "inherit",
    env: { ...process.env, [INSIDE]: "1" },
  });
  const stop = (): void => void child.kill();
  process.once("SIGTERM", stop).once("SIGINT", stop);
  const [code] = await once(child, "exit");
  process.exitCode = code ?? 1;
  return false;
}
