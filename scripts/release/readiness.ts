import type { ReleaseNotes } from "./notes.ts";

/** The facts that decide whether a commit can be released. */
export interface ReleaseFacts {
  readonly version: string;
  /** package.json's `private`: npm publishes no such package. */
  readonly isPrivate: boolean;
  readonly repository: string | undefined;
  readonly notes: ReleaseNotes | undefined;
  /** The tags of the commit that is checked out. */
  readonly tags: readonly string[];
  readonly hasUncommittedChanges: boolean;
}

/** The steps that are missing before these facts are those of a release: a sentence for each. */
export function notReady(facts: ReleaseFacts): string[] {
  const { version, isPrivate, repository, notes, tags, hasUncommittedChanges } = facts;
  const missing: string[] = [];
  if (repository === undefined) {
    missing.push("The project has no repository: set REPOSITORY in scripts/release/addresses.ts and package.json.");
  }
  if (isPrivate) missing.push('npm does not publish this package: remove "private" from package.json.');
  if (notes?.date === undefined) {
    missing.push(
      `CHANGELOG.md has no heading for ${version}: write "## ${version} - YEAR-MONTH-DAY" below Unreleased.`,
    );
  }
  if (!tags.includes(`v${version}`)) missing.push(`The commit has no tag v${version}.`);
  if (hasUncommittedChanges) missing.push("The checkout has changes that are not committed.");
  return missing;
}
