import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { GrpcCall } from "../../shared/konnectivity/grpc-call.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { CallerCredential } from "./authenticate.ts";
import { serveConnect } from "./connect.ts";
import { GrpcCaller } from "./grpc-caller.ts";

/** Konnectivity's service for callers, which has one method. Its protocol file names no package. */
const PROXY = "/ProxyService/Proxy";

const UNIMPLEMENTED =
  "only /ProxyService/Proxy is served here: this is the port of culvert's callers, agents connect to --agent-port";

/** Serves one gRPC call of a caller: a connection through `ProxyService/Proxy`; other methods are refused. */
export function serveGrpc(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  connection: IncomingConnection,
  credential: CallerCredential,
  context: ServerContext,
): void {
  const call = new GrpcCall(stream);
  if (headers[":path"] !== PROXY) {
    call.end("unimplemented", UNIMPLEMENTED);
    return;
  }
  const caller = new GrpcCaller(call, connection, context, (address) => {
    void serveConnect(caller, address, credential, context);
  });
}
