import { execFileSync } from "node:child_process";

/** What a program prints for its own version. */
export function saidVersion(program: string): string {
  return printed(program, "--version") ?? "unknown version";
}

/** The version in the build information that Go puts into a program. */
export function builtVersion(program: string): string {
  const lines = printed("go", "version", "-m", program) ?? "";
  const [, version = "(devel)"] = /^\tmod\t\S+\t(\S+)/m.exec(lines) ?? [];
  return version === "(devel)" ? "unknown version" : version;
}

function printed(program: string, ...args: string[]): string | undefined {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return undefined;
  }
}
