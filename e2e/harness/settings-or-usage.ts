/** The settings of a command of ours, or its usage and exit code 2 where an argument is wrong. */
export function settingsOrUsage<T>(read: (args: readonly string[]) => T, usage: string): T {
  try {
    return read(process.argv.slice(2));
  } catch (error) {
    console.error(`${(error as Error).message}\n${usage}`);
    process.exit(2);
  }
}
