import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { answerAndEnd } from "../../shared/http/connection-end.ts";
import { proxyStatus } from "../../shared/http/response-fields.ts";
import { agentStatus, type CulvertError, outcome, printable } from "../../shared/outcomes.ts";

/** Refuses a connection to the peers' port in HTTP, so that the log of the other end shows the sentence. */
export function refusePeer(socket: Duplex, refusal: CulvertError): void {
  const status = agentStatus(refusal.code);
  const { proxyStatus: error } = outcome(refusal.code);
  const sentence = printable(refusal.message);
  const fields = [
    `Proxy-Status: ${proxyStatus({ error, fault: refusal.fault }, sentence)}`,
    ...["Connection: close", "Content-Type: text/plain", `Content-Length: ${sentence.length + 1}`],
  ];
  answerAndEnd(socket, `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${fields.join("\r\n")}\r\n\r\n${sentence}\n`);
}
