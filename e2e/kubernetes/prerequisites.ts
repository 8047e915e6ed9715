import { run } from "./world/run.ts";

/** What this machine lacks for network namespaces and the commands in them, as a sentence; undefined: nothing. */
export async function whatIsMissing(): Promise<string | undefined> {
  if (process.platform !== "linux") return "network namespaces are Linux'";
  if (process.getuid?.() !== 0) return "network namespaces need root";
  const env = { PATH: process.env["PATH"] ?? "" };
  for (const command of ["ip", "nft", "curl", "tar"]) {
    const { code } = await run(["sh", "-c", `command -v ${command}`], { env });
    if (code !== 0) return `${command} is not installed`;
  }
  const { code, stderr } = await run(["unshare", "--net", "true"], { env });
  return code === 0 ? undefined : `no network namespace can be made here: ${stderr.trim()}`;
}
