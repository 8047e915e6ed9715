import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import type { CertificateAndKey } from "../../../shared/pki/certificates.ts";
import { serve } from "../child.ts";
import { listen, setHighWaterMarks } from "./sockets.ts";

/**
 * One half of a raw relay pair: caller → (unix socket) near → TLS → far → target. Every tunnel in Node is measured by
 * it.
 */
const HIGH_WATER_MARK = 1_048_576;

export type Joining = "pipe" | "corked";

interface ListenParams {
  readonly ports: readonly number[];
  readonly certificate: CertificateAndKey;
  readonly joining: Joining;
}

/** For each target port a TLS listener; answers their ports. */
async function far({ ports, certificate, joining }: ListenParams): Promise<number[]> {
  return listenOverTls(ports, certificate, (socket, port) => {
    join(socket, connect({ host: "127.0.0.1", port, noDelay: true }), joining);
  });
}

/** A further process on the path: a TLS listener for each port of a far half, dialled over TLS. Answers their ports. */
async function between({ ports, certificate, joining }: ListenParams): Promise<number[]> {
  return listenOverTls(ports, certificate, (socket, port) => {
    join(socket, dialOverTls(port, certificate.cert), joining);
  });
}

interface NearParams {
  readonly ways: readonly { readonly path: string; readonly port: number }[];
  readonly ca: string;
  readonly joining: Joining;
}

/** For each unix socket a way to a port of the far half, one TLS connection per stream. */
async function near({ ways, ca, joining }: NearParams): Promise<object> {
  for (const { path, port } of ways) {
    const server = createServer((socket) => {
      join(socket, dialOverTls(port, ca), joining);
    });
    await listen(server, { path });
  }
  return {};
}

function listenOverTls(
  ports: readonly number[],
  certificate: CertificateAndKey,
  onSocket: (socket: Socket, port: number) => void,
): Promise<number[]> {
  return Promise.all(
    ports.map(async (port) => {
      const server = createTlsServer({ ...certificate, noDelay: true }, (socket) => onSocket(socket, port));
      server.on("tlsClientError", ignore);
      await listen(server, { host: "127.0.0.1", port: 0 });
      return (server.address() as AddressInfo).port;
    }),
  );
}

function dialOverTls(port: number, ca: string): Socket {
  const tls = connectTls({ host: "127.0.0.1", port, ca, servername: "localhost" });
  tls.setNoDelay(true);
  return tls;
}

function join(one: Socket, other: Socket, joining: Joining): void {
  one.on("error", () => other.destroy()).on("close", () => other.destroy());
  other.on("error", () => one.destroy()).on("close", () => one.destroy());
  if (joining === "pipe") {
    one.pipe(other).pipe(one);
    return;
  }
  setHighWaterMarks(one, HIGH_WATER_MARK);
  setHighWaterMarks(other, HIGH_WATER_MARK);
  corked(one, other);
  corked(other, one);
}

/** Bytes that arrive in one turn of the event loop leave in one write. */
function corked(from: Socket, to: Socket): void {
  let corkedNow = false;
  const uncork = () => {
    corkedNow = false;
    to.uncork();
  };
  from.on("data", (chunk) => {
    if (!corkedNow) {
      corkedNow = true;
      to.cork();
      setImmediate(uncork);
    }
    if (!to.write(chunk)) from.pause();
  });
  to.on("drain", () => from.resume());
  from.on("end", () => to.end());
}

function ignore(): void {}

const methods = { far, between, near };
export type RelayMethods = typeof methods;
serve(methods);
