import { parseRoutes } from "../../../../router/routes.ts";
import { clusterDocument } from "../../../../server/clusters/document.ts";
import { faultsOf, validateDocuments } from "../../../../shared/documents/schema.ts";
import type { Render } from "../helm.ts";
import { dataOf, nameOf } from "../objects.ts";

type Faults = (file: string, text: string) => readonly string[];

/** Documents of clusters and routes, by the end of their ConfigMap's name. */
const DOCUMENTS: Readonly<Record<string, Faults>> = {
  "-clusters": (_file, text) => faultsOf(validateDocuments(clusterDocument, text)),
  "-routes": (_file, text) => parseRoutes(text).faults,
};

/** Server and router take the documents that they find in their folders. */
export function documentsAreTaken({ objects }: Render): string[] {
  const configMaps = objects.filter(({ kind }) => kind === "ConfigMap");
  return Object.entries(DOCUMENTS).flatMap(([end, faults]) =>
    configMaps
      .filter(({ metadata }) => metadata.name.endsWith(end))
      .flatMap((object) =>
        Object.entries(dataOf(object)).flatMap(([file, text]) =>
          faults(file, text).map((fault) => `${nameOf(object)}, ${file}: ${fault}`),
        ),
      ),
  );
}
