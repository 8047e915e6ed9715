const { CI } = process.env;

/** Counts as the issue states them are for CI; a developer's run does a tenth of them. */
export const FULL = CI === "true";

/** `count` in CI, a thrifty part of it otherwise. */
export function atFull(count: number, thrifty = Math.ceil(count / 10)): number {
  return FULL ? count : thrifty;
}

/** Options of a test that is left to CI, because a developer has better things to wait for. */
export const IN_CI = { skip: !FULL && "in CI only" } as const;
