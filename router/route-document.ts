import { z } from "zod";
import { canonicalServerName } from "../shared/address/server-name.ts";
import { parseTarget } from "../shared/address/target.ts";
import { shownDocument, yamlDocuments } from "../shared/documents/yaml-documents.ts";
import { printable } from "../shared/outcomes.ts";
import type { Route } from "./routes.ts";

/** The routes of a file, or all its faults as sentences. */
export type RouteDocuments =
  | { readonly routes: readonly Route[]; readonly faults?: undefined }
  | { readonly routes?: undefined; readonly faults: readonly string[] };

/** Faults shown of one file: enough to see what is wrong with it. */
const MAX_FAULTS = 20;

const names = z
  .array(made(parseName), 'needs a list of names, such as [blue.example.com, "*.blue.example.com"]')
  .min(1, "is empty: name at least one server name");
const backends = z
  .array(made(parseTarget), "needs a list of backends, such as [10.0.0.1:8091]")
  .min(1, "is empty: name at least one backend")
  .max(64, "names more than 64 backends: give a DNS name or an address of a Service in their place");

const schema = z.strictObject(
  {
    sni: names,
    to: backends,
    // Scalars are text here: what YAML 1.1 writes as `off`, a later tool may have turned into `false`.
    sendProxy: z
      .enum(["v2", "off", "false"], 'needs "v2" or "off"')
      .default("off")
      .transform((text) => (text === "v2" ? "v2" : "off")),
  },
  {
    error: ({ code, keys }) =>
      code === "unrecognized_keys"
        ? `knows no key ${shown(String((keys as string[])[0]))}: leave it out, or write sni, to or sendProxy`
        : "needs the keys sni and to: {sni: [blue.example.com], to: [10.0.0.1:8091]}",
  },
);

/** The YAML documents of a file, each a route (docs/load-balancers.md). Documents without content are left out. */
export function parseRoutes(text: string): RouteDocuments {
  const routes: Route[] = [];
  const faults: string[] = [];
  for (const { number, value, fault } of yamlDocuments(text)) {
    const where = shownDocument(number);
    if (fault !== undefined) faults.push(`${where}${fault}`);
    else {
      const result = schema.safeParse(value);
      const document = number === undefined ? {} : { document: number };
      if (result.success) routes.push({ name: result.data.sni[0] ?? "", ...document, ...result.data });
      else faults.push(...result.error.issues.map(({ path, message }) => `${where}${shownPath(path)}${message}.`));
    }
  }
  return faults.length === 0 ? { routes } : { faults: faults.slice(0, MAX_FAULTS) };
}

/** A string of which `parse` makes something, or throws why not. */
function made<T>(parse: (text: string) => T) {
  return z.string("needs a text").transform((text, context): T => {
    try {
      return parse(text);
    } catch (error) {
      context.addIssue({ code: "custom", message: (error as Error).message });
      return z.NEVER;
    }
  });
}

function parseName(text: string): string {
  const isWildcard = text.startsWith("*.");
  const { name, fault } = canonicalServerName(isWildcard ? text.slice(2) : text);
  if (fault !== undefined)
    throw new Error(`${shown(text)} ${fault}: write for example blue.example.com, or *.example.com`);
  return isWildcard ? `*.${name}` : name;
}

/** `sni[0] ` */
function shownPath(path: readonly PropertyKey[]): string {
  const text = path.map((part) => (typeof part === "number" ? `[${part}]` : `.${String(part)}`)).join("");
  return text === "" ? "" : `${printable(text.replace(/^\./, ""), 60)} `;
}

function shown(text: string): string {
  return `"${printable(text, 80)}"`;
}
