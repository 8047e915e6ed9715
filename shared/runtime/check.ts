/** A condition of readiness, such as "listeners are up". */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** The process is ready, but not everything works as configured; `detail` says what. */
  readonly hasFaults?: boolean;
  readonly detail?: string;
}

/** The health port shows this instead of names of tenants and paths of files. */
export const SHOWN_ON_ADMIN_PORT = "named at /readyz?verbose of the admin port";

/** The number of faults, where their text must not be shown; "" for none. */
export function countOnly(count: number, what: string): string {
  return count === 0 ? "" : `${count} ${what}${count === 1 ? "" : "s"}, ${SHOWN_ON_ADMIN_PORT}`;
}
