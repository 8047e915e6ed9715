#!/usr/bin/env node
// No module is imported before the signals are handled: that takes longer than an operator's next command.

/** Node.js opens its inspector at SIGUSR1, which a caller could reach through an agent. */
process.on("SIGUSR1", () => {});

/**
 * A service that is asked to end before it is up has nothing to close. The kernel ignores signals without a listener
 * for process 1, which is the main process of a container: short commands end as a shell reports it. Whatever has
 * listeners of its own handles the signals itself.
 */
const isService = /^(?:server|agent|router|(?:konnectivity-)?(?:socks5|https?)-proxy)$/.test(process.argv[2] ?? "");
for (const [signal, code] of [
  ["SIGTERM", 143],
  ["SIGINT", 130],
] as const) {
  if (!isService && process.pid !== 1) continue;
  process.on(signal, () => {
    if (process.listenerCount(signal) === 1) process.exit(isService ? 0 : code);
  });
}

// A child of `culvert demo` ends with it, even if the demo was killed. Its channel must not keep a process alive.
if (process.connected) {
  process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
  process.channel?.unref();
}

// An older Node.js fails while modules are loaded, with a stack that says nothing of its version.
const { bun, node } = process.versions;
const [name, version, least] = bun === undefined ? ["Node.js", node, "20.19"] : ["Bun", bun, "1.4.5"];
if (isOlder(version, least)) {
  const sentence = `${name} ${version} is too old: culvert needs ${least} or newer. Install it, and run culvert with it`;
  process.stderr.write(`culvert: ${sentence}\n`);
  process.exitCode = 1;
} else {
  await import("./command-line.ts");
}

function isOlder(version: string, least: string): boolean {
  const [has, needs] = [version, least].map((text) => text.split(".").map(Number));
  const at = needs?.findIndex((part, index) => part !== has?.[index]) ?? -1;
  return at >= 0 && (has?.[at] ?? 0) < (needs?.[at] ?? 0);
}
