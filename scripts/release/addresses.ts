// Where the project is published. These are placeholders: it has no repository and has published nothing yet. A test
// compares every other file that names one of these addresses with this one (e2e/release/addresses.test.ts).

/**
 * Address of the repository for browsers, such as "https://github.com/OWNER/culvert", once there is one. package.json
 * gets the same in its field `repository`: npm compares it with the origin of a package.
 */
export const REPOSITORY: string | undefined = undefined;

/** Name of the image, without a tag. */
export const IMAGE = "ghcr.io/culvert-gateway/culvert";

/** Folder of the charts in an OCI registry. */
export const CHARTS = "ghcr.io/culvert-gateway/charts";
