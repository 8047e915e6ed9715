/** Modules are read many at a time: router and agent start with 120 and not with 100, a server with 150. */
const FOR_MODULES = 150;

const ERRNOS: ReadonlyMap<string | undefined, "process" | "machine"> = new Map([
  ["EMFILE", "process"],
  ["ENFILE", "machine"],
]);

/** Who has no file descriptor left, if it is that for which something failed, or one of the attempts of which it consisted. */
export function outOfFiles(error: unknown): "process" | "machine" | undefined {
  if (!(error instanceof Error)) return undefined;
  const own = ERRNOS.get((error as NodeJS.ErrnoException).code);
  if (own !== undefined) return own;
  const causes = error instanceof AggregateError ? error.errors : [error.cause];
  return causes.map(outOfFiles).find((whose) => whose !== undefined);
}

/** What a start needs that failed for want of file descriptors; `undefined`: it failed for something else. Imports nothing, which would need one. */
export function tooFewFilesToStart(error: unknown): string | undefined {
  switch (outOfFiles(error)) {
    case "process":
      return `this process may have ${openFilesLimit()} files open, which is too few to start (${FOR_MODULES} for its own modules, and what its configuration names): raise the limit (ulimit -n, or LimitNOFILE= in its systemd unit)`;
    case "machine":
      return "this machine has as many files open as it may, which leaves none for a start: raise its limit (sysctl fs.file-max), or end what holds them";
    default:
      return undefined;
  }
}

/** Asked of Node, since to read /proc takes a descriptor, too. */
function openFilesLimit(): string {
  const { report } = process;
  Object.assign(report, { excludeNetwork: true }); // it would look up the names of peers
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return String(userLimits?.open_files?.soft ?? "only so many");
}
