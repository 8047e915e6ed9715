const { CI, CULVERT_FULL } = process.env;

/** Does this run belong to CI? A developer's run does a tenth of what CI does. */
export const ON_CI = CI === "true";

/**
 * Does this run have whole matrices, as `npm run test:full` has? CI has one row of each kind: what differs in the other
 * rows is tested in a layer below.
 */
export const WHOLE_MATRICES = CULVERT_FULL === "1";

/** `count` in a run with whole matrices, `ci` in CI, and a thrifty part of it in a developer's run. */
export function atFull(count: number, thrifty = Math.ceil(count / 10), ci = count): number {
  if (WHOLE_MATRICES) return count;
  return ON_CI ? ci : thrifty;
}

/** Options of a test that is left to CI, because a developer has better things to wait for. */
export const IN_CI = { skip: !ON_CI && "in CI only" } as const;
