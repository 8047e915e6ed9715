import { shownDocument } from "../shared/documents/yaml-documents.ts";
import type { RouteDocuments } from "./route-document.ts";
import { type Route, RouteTable } from "./routes.ts";
import { NamesTaken, type TakenName } from "./taken-names.ts";

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
 * which leads to another's route already: a mistake for one cluster must not touch the others. A file that keeps its routes
 * claims again what it had given up, so this repeats until no other file is refused.
 */
export function settleRoutes(files: readonly RouteFile[]): SettledRoutes {
  const inUse = new Map(files.map((file) => [file.path, file.documents.routes ?? file.inUse]));
  const faults = files.flatMap(({ path, documents }) => (documents.faults ?? []).map((fault) => `${path}: ${fault}`));
  for (;;) {
    const refused = refusedIn(files, inUse);
    if (refused.size === 0) return { table: new RouteTable([...inUse.values()].flat()), inUse, faults };
    for (const { path, inUse: before } of files) {
      const sentences = refused.get(path);
      if (sentences === undefined) continue;
      inUse.set(path, before);
      faults.push(...sentences.map((sentence) => `${path}: ${sentence}`));
    }
  }
}

/** Files whose new routes cannot be in use beside the others, with a sentence for each name. */
function refusedIn(
  files: readonly RouteFile[],
  inUse: ReadonlyMap<string, readonly Route[]>,
): ReadonlyMap<string, readonly string[]> {
  const wantedBy = ({ path }: RouteFile): TakenName[] => namesOf(path, inUse.get(path) ?? []);
  const changed = files.filter((file) => inUse.get(file.path) !== file.inUse);
  const unchanged = files.filter((file) => !changed.includes(file));
  // Whoever has a name and still wants it keeps it, whatever others claim now.
  const held = new NamesTaken(unchanged.flatMap(wantedBy));
  for (const file of changed) {
    const before = new Set(file.inUse.flatMap(({ sni }) => sni));
    for (const wanted of wantedBy(file)) if (before.has(wanted.name)) held.add(wanted);
  }
  const refused = new Map<string, string[]>();
  const refuse = (wanted: TakenName, other: TakenName | undefined): void => {
    if (other !== undefined) refused.set(wanted.path, [...(refused.get(wanted.path) ?? []), objection(wanted, other)]);
  };
  for (const wanted of changed.flatMap(wantedBy)) {
    refuse(
      wanted,
      held.overlapping(wanted.name, ({ path }) => path !== wanted.path),
    );
  }
  const granted = new NamesTaken();
  for (const file of changed.filter(({ path }) => !refused.has(path))) {
    const own = new NamesTaken();
    const names = wantedBy(file);
    for (const wanted of names) {
      refuse(
        wanted,
        granted.overlapping(wanted.name, () => true),
      );
      // Within one route names may overlap: they lead to the same backends.
      refuse(
        wanted,
        own.overlapping(wanted.name, ({ route, name }) => route !== wanted.route || name === wanted.name),
      );
      own.add(wanted);
    }
    if (!refused.has(file.path)) for (const name of names) granted.add(name);
  }
  return refused;
}

function namesOf(path: string, routes: readonly Route[]): TakenName[] {
  return routes.flatMap((route) => route.sni.map((name) => ({ name, path, route })));
}

function objection({ name, route }: TakenName, other: TakenName): string {
  const number = other.route.document;
  const where = `${other.path}${number === undefined ? "" : `, document ${number}`}`;
  const what =
    name === other.name ? `is claimed twice, also in ${where}` : `overlaps "${other.name}" in another route (${where})`;
  return `${shownDocument(route.document)}"${name}" ${what}: leave it in one route only.`;
}
