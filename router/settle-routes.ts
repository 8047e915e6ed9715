import type { RouteDocuments } from "./route-document.ts";
import { type Route, RouteTable } from "./routes.ts";

/** A file with routes. */
export interface RouteFile {
  readonly path: string;
  /** What it says now. */
  readonly documents: RouteDocuments;
  /** Which of its routes are in use; none of a file that has just appeared. */
  readonly inUse: readonly Route[];
}

export interface SettledRoutes {
  readonly table: RouteTable;
  /** By the path of the file. */
  readonly inUse: ReadonlyMap<string, readonly Route[]>;
  /** Why a file is not in use as it is now: sentences that begin with its path. */
  readonly faults: readonly string[];
}

/**
 * The routes of all files together. A file that cannot be used keeps the routes it had, and so does one that claims a name
 * which another has already: a mistake for one cluster must not touch the others.
 */
export function settleRoutes(files: readonly RouteFile[]): SettledRoutes {
  const claims = new Map<string, string>();
  const inUse = new Map<string, readonly Route[]>();
  const faults: string[] = [];
  // Who has not changed keeps its names, whatever others claim now.
  const isSame = ({ documents, inUse }: RouteFile): boolean => documents.routes === inUse;
  for (const file of [...files.filter(isSame), ...files.filter((file) => !isSame(file))]) {
    const { path, documents } = file;
    const wrong = documents.faults ?? conflicts(documents.routes, path, claims);
    faults.push(...wrong.map((fault) => `${path}: ${fault}`));
    const routes = wrong.length === 0 ? (documents.routes ?? []) : file.inUse;
    // Of what it had, another file may have taken something over in the meantime.
    const kept = conflicts(routes, path, claims).length === 0 ? routes : [];
    for (const name of kept.flatMap(({ sni }) => sni)) claims.set(name, path);
    inUse.set(path, kept);
  }
  return { table: new RouteTable([...inUse.values()].flat()), inUse, faults };
}

function conflicts(routes: readonly Route[], path: string, claims: ReadonlyMap<string, string>): string[] {
  const own = new Set<string>();
  const faults: string[] = [];
  for (const name of routes.flatMap(({ sni }) => sni)) {
    const other = own.has(name) ? path : claims.get(name);
    if (other !== undefined) faults.push(`"${name}" is claimed twice, also in ${other}: leave it in one route only.`);
    own.add(name);
  }
  return faults;
}
