import { type ClientHttp2Stream, connect, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import type { Socket } from "node:net";
import { until } from "../../../shared/basics/testing/wait.ts";
import { encodeData } from "../../../shared/konnectivity/data.ts";
import { type ControlPacket, encodePacket } from "../../../shared/konnectivity/packet.ts";
import { PacketReader } from "../../../shared/konnectivity/packet-reader.ts";

type ValueOf<C extends ControlPacket["case"], P = ControlPacket> = P extends { case: C; value: infer V } ? V : never;

/** One gRPC call of a caller, on an HTTP/2 connection of its own, which writes and reads Konnectivity's packets. */
export class CallOfTest {
  readonly socket: Socket;
  readonly stream: ClientHttp2Stream;
  readonly #session: ReturnType<typeof connect>;
  readonly packets: ControlPacket[] = [];
  /** The payload of all DATA, by connectID. */
  readonly received = new Map<bigint, Buffer[]>();
  /** Trailers; in an answer without messages those of the header as well. */
  trailers: IncomingHttpHeaders = {};
  closed = false;
  connectionClosed = false;

  constructor(socket: Socket, headers: OutgoingHttpHeaders = {}) {
    this.socket = socket;
    socket.removeAllListeners("data");
    const session = connect("http://localhost", { createConnection: () => socket });
    session.on("error", () => {});
    session.on("close", () => {
      this.connectionClosed = true;
    });
    this.#session = session;
    this.stream = session.request(
      {
        ":method": "POST",
        ":path": "/ProxyService/Proxy",
        "content-type": "application/grpc",
        te: "trailers",
        ...headers,
      },
      { endStream: false },
    );
    const reader = new PacketReader({
      onData: (id, part) => this.received.set(id, [...(this.received.get(id) ?? []), part]),
      onPacket: (packet) => this.packets.push(packet),
    });
    this.stream.on("data", (chunk: Buffer) => reader.push(chunk));
    this.stream.on("response", (fields) => {
      this.trailers = { ...this.trailers, ...fields };
    });
    this.stream.on("trailers", (fields) => {
      this.trailers = { ...this.trailers, ...fields };
    });
    this.stream.on("error", () => {});
    this.stream.on("close", () => {
      this.closed = true;
    });
  }

  send(...packets: ControlPacket[]): void {
    for (const packet of packets) this.stream.write(encodePacket(packet));
  }

  sendData(connectID: bigint, bytes: string | Buffer): void {
    for (const piece of encodeData(connectID, Buffer.from(bytes))) this.stream.write(piece);
  }

  dial(address = "10.0.0.1:10250", random = 77n): void {
    this.send({ case: "dialRequest", value: { protocol: "tcp", address, random } });
  }

  /** Dials, and returns the number of the connection. */
  async open(): Promise<bigint> {
    this.dial();
    const { connectID, error } = await this.next("dialResponse");
    if (error !== "") throw new Error(error);
    return connectID;
  }

  /** The first packet of this kind. */
  async next<C extends ControlPacket["case"]>(name: C): Promise<ValueOf<C>> {
    const found = () => this.packets.find((packet) => packet.case === name);
    await until(() => found() !== undefined || this.closed);
    const packet = found();
    if (packet === undefined) throw new Error(`the call has ended without ${name}`);
    return packet.value as ValueOf<C>;
  }

  text(connectID: bigint): string {
    return Buffer.concat(this.received.get(connectID) ?? []).toString("latin1");
  }

  /** The call's status, when it has ended. It ends its own side then, as gRPC libraries do. */
  async status(): Promise<string> {
    await until(() => this.closed || this.trailers["grpc-status"] !== undefined);
    this.stream.end();
    await until(() => this.closed);
    return `${this.trailers["grpc-status"]} ${decodeURIComponent(String(this.trailers["grpc-message"] ?? ""))}`.trim();
  }

  /** Cuts the connection. */
  cut(): void {
    this.#session.destroy();
  }
}
