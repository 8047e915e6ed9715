import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import net from "node:net";
import { type Duplex, duplexPair, finished } from "node:stream";
import { text } from "node:stream/consumers";
import tls from "node:tls";
import { untilAborted } from "../../shared/basics/promises.ts";

interface ConnectPlan {
  readonly proxy: { readonly port: number; readonly ca: string; readonly cert: string; readonly key: string };
  readonly target: { readonly host: string; readonly port: number; readonly ca: string };
}

const DEADLINE_MS = 10_000;

/**
 * Sends one CONNECT as kube-apiserver does: mutual TLS, CONNECT, then TLS with the target inside the tunnel. Says after
 * each step what has happened.
 */
export async function connectOnce(plan: ConnectPlan, step: (sentence: string) => void): Promise<void> {
  const raw = net.connect(plan.proxy.port, "127.0.0.1");
  raw.on("error", () => {});
  const limit = AbortSignal.timeout(DEADLINE_MS);
  try {
    await untilAborted(steps(raw, plan, step), limit);
  } catch (error) {
    throw limit.aborted ? new Error(`not done within ${DEADLINE_MS / 1000} s`) : error;
  } finally {
    raw.destroy();
  }
}

async function steps(raw: net.Socket, { proxy, target }: ConnectPlan, step: (sentence: string) => void): Promise<void> {
  const authority = `${target.host}:${target.port}`;
  await once(raw, "connect");
  step(`TCP connection to 127.0.0.1:${proxy.port}`);

  const outer = await secure(raw, { ca: proxy.ca, cert: proxy.cert, key: proxy.key, servername: "localhost" });
  step(`${outer.getProtocol()} with the server: it is ${nameOf(outer)}, we are CN=culvert-client`);

  const asked = request({ method: "CONNECT", path: authority, createConnection: () => outer }).end();
  const answered = once(asked, "connect").catch((cause: unknown) => {
    throw new Error("the server closed the connection before it answered", { cause });
  });
  const [answer] = (await answered) as [IncomingMessage];
  const statusLine = `HTTP/${answer.httpVersion} ${answer.statusCode} ${answer.statusMessage}`;
  if (answer.statusCode !== 200) throw new Error(`the server answered: ${statusLine}`);
  step(`CONNECT ${authority} to server, agent, target: ${statusLine}`);

  const inner = await secure(inside(outer), { ca: target.ca, servername: target.host });
  step(`${inner.getProtocol()} with the target, through the tunnel: it is ${nameOf(inner)}`);

  inner.write(`GET /from-the-demo HTTP/1.1\r\nHost: ${authority}\r\nConnection: close\r\n\r\n`);
  const [head = "", body = ""] = (await text(inner)).split("\r\n\r\n", 2);
  step(`GET /from-the-demo: ${head.split("\r\n", 1)[0]}: "${body.split("\n", 1)[0]}"`);
  await endCleanly(outer);
}

/**
 * A Duplex for TLS with the target. When that TLS ends it destroys the stream below, which would reset the connection
 * to the server while it still sends; the pipes keep them apart. Errors of the path are passed on, which pipes do not
 * do.
 */
function inside(socket: Duplex): Duplex {
  const [near, far] = duplexPair();
  far.pipe(socket).pipe(far);
  finished(socket, { writable: false }, (error) => {
    if (error) near.destroy(error);
  });
  return near;
}

/**
 * Waits until the server has ended its side as well. A reset is no fault any more: a target that has sent everything
 * and has gone answers the last record of TLS by one.
 */
async function endCleanly(socket: Duplex): Promise<void> {
  socket.end();
  if (!socket.closed) await new Promise((resolve) => socket.once("close", resolve));
}

async function secure(socket: Duplex, options: tls.ConnectionOptions): Promise<tls.TLSSocket> {
  const secured = tls.connect({ ...options, socket: socket as net.Socket });
  await once(secured, "secureConnect");
  // Later errors reach the code that reads.
  secured.on("error", () => {});
  return secured;
}

function nameOf(socket: tls.TLSSocket): string {
  return `CN=${[socket.getPeerCertificate().subject.CN].flat()[0]}`;
}
