import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";

export interface WantedPort {
  readonly port: number;
  readonly purpose: string;
}

export interface ChosenPort extends WantedPort {
  /** The port that was wanted, when another process has it. */
  readonly insteadOf?: number;
}

/** A port of loopback for each purpose: the wanted one, or a free one where it is taken. */
export async function choosePorts<Name extends string>(
  wanted: Readonly<Record<Name, WantedPort>>,
): Promise<Record<Name, ChosenPort>> {
  const held: Server[] = [];
  const chosen: Partial<Record<Name, ChosenPort>> = {};
  try {
    // All are held until the last is chosen, so that no free one is chosen twice or is another's wish.
    const busy: Name[] = [];
    for (const name of Object.keys(wanted) as Name[]) {
      const server = await listen(wanted[name].port);
      if (server === undefined) busy.push(name);
      else {
        held.push(server);
        chosen[name] = wanted[name];
      }
    }
    for (const name of busy) {
      const server = await listen(0);
      if (server === undefined) throw new Error("no port of 127.0.0.1 is free");
      held.push(server);
      const { port } = server.address() as AddressInfo;
      chosen[name] = { ...wanted[name], port, insteadOf: wanted[name].port };
    }
    return chosen as Record<Name, ChosenPort>;
  } finally {
    for (const server of held) server.close();
    await Promise.all(held.map((server) => once(server, "close")));
  }
}

async function listen(port: number): Promise<Server | undefined> {
  const server = createServer();
  server.listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
    return server;
  } catch {
    return undefined;
  }
}
