import { connect, createSecureContext, type SecureContext } from "node:tls";
import { serve } from "../child.ts";

export interface Visitor {
  readonly servername: string;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** No CONNECT: the shortest way to an answer, which says that the server, too, is done with the handshake. */
const REQUEST = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const visitors: { readonly servername: string; readonly secureContext: SecureContext }[] = [];

function invite({ more }: { more: readonly Visitor[] }): object {
  for (const { servername, ...tls } of more) visitors.push({ servername, secureContext: createSecureContext(tls) });
  return {};
}

/** Each of the first `clusters` once: the server makes a context when a name is first asked for. */
async function visitAll({ port, clusters }: { port: number; clusters: number }): Promise<object> {
  for (let index = 0; index < clusters; index++) await visit(port, index);
  return {};
}

interface RateParams {
  readonly port: number;
  /** A random one of this number of clusters. */
  readonly clusters: number;
  readonly inFlight: number;
  readonly seconds: number;
}

/** Mutual handshakes one after the other in `inFlight` lanes. */
async function rate({ port, clusters, inFlight, seconds }: RateParams): Promise<{ perSecond: number }> {
  const begun = performance.now();
  let done = 0;
  const lane = async () => {
    while (performance.now() - begun < seconds * 1_000) {
      await visit(port, Math.floor(Math.random() * clusters));
      done++;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  return { perSecond: done / ((performance.now() - begun) / 1_000) };
}

function visit(port: number, index: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: "127.0.0.1", port, ...visitors[index] });
    socket.setNoDelay(true);
    socket.once("secureConnect", () => socket.write(REQUEST));
    socket.once("data", () => {
      resolve();
      socket.destroy();
    });
    socket.once("error", reject);
    socket.once("close", () => reject(new Error(`no answer at the name of cluster ${index}`)));
  });
}

const methods = { invite, visitAll, rate };
export type HandshakeMethods = typeof methods;
serve(methods);
