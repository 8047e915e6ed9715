import type { Duplex } from "node:stream";
import { answerAndEnd, refusalText } from "../../shared/http/connection-end.ts";
import { proxyStatus } from "../../shared/http/response-fields.ts";
import { agentStatus, type CulvertError, outcome, printable } from "../../shared/outcomes.ts";

/** Refuses a connection to the peers' port in HTTP, so that the log of the other end shows the sentence. */
export function refusePeer(socket: Duplex, { code, fault, message }: CulvertError): void {
  const sentence = printable(message);
  const headers = { "Proxy-Status": proxyStatus({ error: outcome(code).proxyStatus, fault }, sentence) };
  answerAndEnd(socket, refusalText(agentStatus(code), headers, sentence));
}
