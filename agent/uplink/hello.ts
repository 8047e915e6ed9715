import { randomUUID } from "node:crypto";
import { isEmpty, parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { Hello } from "../../shared/link/control.ts";
import { HANDSHAKE_VERSION } from "../../shared/wire/handshake.ts";

/** What an agent says of itself; "" = not given. */
export interface HelloOptions {
  readonly agentId: string;
  readonly cluster: string;
  readonly agentIdentifiers: readonly string[];
}

/** The hello message of a process. `program`: its name and version. */
export function helloOf({ agentId, cluster, agentIdentifiers }: HelloOptions, program: string): Hello {
  const identifiers = parseIdentifiers(agentIdentifiers);
  return {
    type: "hello",
    version: HANDSHAKE_VERSION,
    agentId,
    instance: randomUUID(),
    software: `${program} node/${process.versions.node}`,
    ...(cluster !== "" && { cluster }),
    ...(!isEmpty(identifiers) && { identifiers }),
  };
}
