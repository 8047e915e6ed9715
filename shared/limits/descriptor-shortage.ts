const SHORTAGES: ReadonlyMap<string | undefined, "process" | "machine"> = new Map([
  ["EMFILE", "process"],
  ["ENFILE", "machine"],
]);

/** Says whose descriptors are used up, if that is why something failed, or one of the attempts that it consisted of. */
export function descriptorShortage(error: unknown): "process" | "machine" | undefined {
  if (!(error instanceof Error)) return undefined;
  const own = SHORTAGES.get((error as NodeJS.ErrnoException).code);
  if (own !== undefined) return own;
  const causes = error instanceof AggregateError ? error.errors : [error.cause];
  return causes.map(descriptorShortage).find((whose) => whose !== undefined);
}

/** A sentence if a start failed for want of descriptors, else `undefined`. */
export function tooFewFilesToStart(error: unknown): string | undefined {
  switch (descriptorShortage(error)) {
    case "process":
      return (
        `this process may have ${limitOfReport()} files open, which is too few to start with this configuration: ` +
        "raise the limit (ulimit -n, or LimitNOFILE= in its systemd unit)"
      );
    case "machine":
      return (
        "this machine has as many files open as it may, which leaves none for a start: " +
        "raise its limit (sysctl fs.file-max), or end what holds them"
      );
    default:
      return undefined;
  }
}

/** The limit as Node's report has it, since reading /proc would take a descriptor. */
function limitOfReport(): string {
  const { report } = process;
  Object.assign(report, { excludeNetwork: true }); // it would look up the names of peers
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return String(userLimits?.open_files?.soft ?? "only so many");
}
