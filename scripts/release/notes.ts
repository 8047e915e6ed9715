/** A release's part of CHANGELOG.md. */
export interface ReleaseNotes {
  /** The day of the release as the heading says it; `undefined` under the heading "Unreleased". */
  readonly date: string | undefined;
  readonly text: string;
}

/** A heading of a release: `## 1.2.3 - 2026-11-29`, or `## Unreleased`. */
const HEADING = /^## (?:(?<version>\d+\.\d+\.\d+(?:-[0-9a-z.]+)?) - (?<date>\d{4}-\d\d-\d\d)|Unreleased)$/;

/**
 * The notes of a version out of the text of CHANGELOG.md. A version without a heading is about to be released: its
 * notes are under "Unreleased". `undefined`: there is neither heading.
 */
export function releaseNotes(changelog: string, version: string): ReleaseNotes | undefined {
  const lines = changelog.split("\n");
  const headings = lines.flatMap((line, at) => {
    const groups = HEADING.exec(line)?.groups;
    return groups === undefined ? [] : [{ at, version: groups["version"], date: groups["date"] }];
  });
  const own = headings.find((each) => each.version === version) ?? headings.find((each) => each.version === undefined);
  if (own === undefined) return undefined;
  const end = lines.findIndex((line, at) => at > own.at && line.startsWith("## "));
  const text = lines.slice(own.at + 1, end === -1 ? undefined : end).join("\n");
  return { date: own.date, text: text.trim() };
}

/** Headings of the second level that are not those of a release: a typing error would hide a release's notes. */
export function unknownHeadings(changelog: string): string[] {
  return changelog.split("\n").filter((line) => line.startsWith("## ") && !HEADING.test(line));
}

/** Links of a page of the repository, as they work elsewhere: to the files of this version. */
export function withAbsoluteLinks(text: string, repository: string, version: string): string {
  return text.replace(/\]\((?![a-z]+:|#)/g, `](${repository}/blob/v${version}/`);
}
