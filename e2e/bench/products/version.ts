import { execFileSync } from "node:child_process";

/** The version that a program prints of itself. */
export function saidVersion(program: string): string {
  return printed(program, "--version") ?? "unknown version";
}

/** The version in the build information that Go puts into a program; of a clone, the commit that was built. */
export function builtVersion(program: string): string {
  return versionIn(printed("go", "version", "-m", program) ?? "");
}

/** The version in the lines that `go version -m` prints. */
export function versionIn(lines: string): string {
  const [, version = "(devel)"] = /^\tmod\t\S+\t(\S+)/m.exec(lines) ?? [];
  const [, revision] = /^\tbuild\tvcs\.revision=(\w+)/m.exec(lines) ?? [];
  if (version !== "(devel)") return version;
  return revision === undefined ? "unknown version" : `commit ${revision.slice(0, 12)}`;
}

function printed(program: string, ...args: string[]): string | undefined {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return undefined;
  }
}
