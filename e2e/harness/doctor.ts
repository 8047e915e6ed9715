import { once } from "node:events";
import { writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { diagnose, type ServerReport } from "../../agent/doctor/doctor.ts";
import { type DoctorOptions, doctorOptions } from "../../agent/doctor/options.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { defaultsOf } from "../../shared/process/options.ts";
import { agentFiles } from "./pki-files.ts";
import type { World } from "./world.ts";

/** What of the options and of the environment a test wants otherwise. */
export interface DoctorChange extends Partial<DoctorOptions> {
  readonly env?: Readonly<Record<string, string>>;
}

/** The doctor's report on the way to the world's server, or to another port. */
export async function examined(
  world: Pick<World, "dir" | "server">,
  { env = {}, ...change }: DoctorChange = {},
): Promise<ServerReport> {
  const options: DoctorOptions = {
    ...defaultsOf(doctorOptions),
    agentId: "agent-1",
    server: [`wss://127.0.0.1:${world.server.addresses.agents?.port}`],
    seconds: 0,
    handshakeTimeoutMs: 5_000,
    ...agentFiles(world.dir.path),
    ...change,
  };
  const { servers } = await diagnose(options, env, { onServer: () => {}, onStep: () => {}, onVerdict: () => {} });
  return servers[0] as ServerReport;
}

/** A certificate as an agent's files. */
export function asAgent({ dir }: Pick<World, "dir">, { cert, key }: CertificateAndKey): Partial<DoctorOptions> {
  const [agentCert, agentKey] = [dir.file("doctor.crt"), dir.file("doctor.key")];
  writeFileSync(agentCert, cert);
  writeFileSync(agentKey, key);
  return { agentCert, agentKey };
}

/** Somebody with a certificate who answers each request, and takes no upgrade. */
export async function site(leaf: CertificateAndKey, answer: RequestListener) {
  const server = createServer(leaf, answer);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    server: [`wss://127.0.0.1:${(server.address() as AddressInfo).port}`],
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
