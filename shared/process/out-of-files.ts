/** What a start needs that failed for want of file descriptors; `undefined`: it failed for something else. Imports nothing, which would need one. */
export function outOfFiles(error: unknown): string | undefined {
  if ((error as NodeJS.ErrnoException | undefined)?.code !== "EMFILE") return undefined;
  return `this process may have ${openFilesLimit()} files open, which is too few to start: raise the limit (ulimit -n, or LimitNOFILE= in its systemd unit)`;
}

/** Asked of Node, since to read /proc takes a descriptor, too. */
function openFilesLimit(): string {
  const { report } = process;
  Object.assign(report, { excludeNetwork: true }); // it would look up the names of peers
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return String(userLimits?.open_files?.soft ?? "only so many");
}
