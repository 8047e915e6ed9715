/** One condition of readiness, such as "listeners are up". */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** Not all is in use as it is configured, and the process is ready all the same; `detail` says what. */
  readonly hasFaults?: boolean;
  readonly detail?: string;
}

/** What stands on the health port in place of names of tenants and paths of files. */
export const WHERE_NAMED = "named at /readyz?verbose of the admin port";

/** So many faults or the like, where they are not named; empty: there are none. */
export function counted(count: number, what: string): string {
  return count === 0 ? "" : `${count} ${what}${count === 1 ? "" : "s"}, ${WHERE_NAMED}`;
}
