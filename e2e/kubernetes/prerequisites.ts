import { createNetwork } from "./world/network.ts";
import { run } from "./world/run.ts";

const COMMANDS = ["ip", "tc", "nft", "curl", "tar", "unshare", "setpriv", "chroot"];

/** A sentence about commands and rights that this machine lacks for network namespaces; undefined: none. */
export async function whatIsMissing(): Promise<string | undefined> {
  if (process.platform !== "linux") return "network namespaces are Linux'";
  if (process.getuid?.() !== 0) return "network namespaces need root";
  const env = { PATH: process.env["PATH"] ?? "" };
  for (const command of COMMANDS) {
    const { code } = await run(["sh", "-c", `command -v ${command}`], { env });
    if (code !== 0) return `${command} is not installed`;
  }
  try {
    // A kernel may lack the modules, or a container the rights, for what the commands are asked to do.
    await using network = await createNetwork();
    await network.reset();
    return undefined;
  } catch (error) {
    return `this machine makes no network namespaces with a gate in between: ${(error as Error).message.trim()}`;
  }
}
