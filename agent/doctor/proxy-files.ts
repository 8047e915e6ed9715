import { CredentialsFile } from "../../shared/dial/credentials-file.ts";
import { RouteFault } from "../../shared/dial/fault.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { KeptProxyTls } from "../uplink/kept-proxy-tls.ts";
import type { WayOutOptions } from "../uplink/way-out.ts";

export type ProxyFiles = Pick<WayOutOptions, "proxyCredentialsFile" | "proxyCa" | "proxyCert" | "proxyKey">;

/** What an agent will say of its files for proxies, as soon as a proxy has need of them. */
export async function faultsOfProxyFiles(files: ProxyFiles): Promise<readonly string[]> {
  const { proxyCredentialsFile, proxyCa: caFile, proxyCert: certFile, proxyKey: keyFile } = files;
  const tls = new KeptProxyTls({ caFile, certFile, keyFile }, SILENT);
  const reading = [
    ...(proxyCredentialsFile === "" ? [] : [new CredentialsFile(proxyCredentialsFile).read(NEVER)]),
    (async () => tls.current())(),
  ];
  const read = await Promise.allSettled(reading);
  return read.flatMap((result) => (result.status === "rejected" ? sentenceOf(result.reason) : []));
}

function sentenceOf(fault: unknown): string {
  if (fault instanceof RouteFault) return fault.message;
  throw fault;
}

/** A file has a limit of its own. */
const NEVER = new AbortController().signal;
const SILENT = createLogger({ level: "silent", format: "json", name: "doctor", destination: { write: () => {} } });
