import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, type IncomingHttpHeaders } from "node:http2";
import type { Socket } from "node:net";
import { connect as dialTls } from "node:tls";
import { until } from "../../../shared/basics/testing/wait.ts";
import { encodeData } from "../../../shared/konnectivity/data.ts";
import { type ControlPacket, encodePacket } from "../../../shared/konnectivity/packet.ts";
import { PacketReader } from "../../../shared/konnectivity/packet-reader.ts";
import type { CertificateAndKey } from "../../../shared/pki/certificates.ts";
import type { Server } from "../../server.ts";
import { pki } from "../../testing/server.ts";

interface Settings {
  readonly by?: CertificateAndKey | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly servername?: string;
  readonly ca?: string;
}

/** One connection of an agent to a target: what has arrived for it. */
interface Target {
  readonly address: string;
  readonly connectID: bigint;
  received: Buffer[];
}

/** Speaks as konnectivity-agent does. Its targets echo, unless a test says otherwise. */
export class StockAgent {
  readonly session: ClientHttp2Session;
  readonly call: ClientHttp2Stream;
  /** Packets that have come, other than DATA and questions of `RoundTrips`. */
  readonly packets: ControlPacket[] = [];
  readonly targets = new Map<bigint, Target>();
  /** The target's reaction to bytes. */
  onData = (target: Target, bytes: Buffer): void => this.sendData(target.connectID, bytes);
  /** The agent's reaction to DIAL_REQ; by default the target is there. */
  onDial = (address: string, random: bigint): void => void this.accept(address, random);
  /** The headers of the answer, once they have come. */
  welcome: IncomingHttpHeaders | undefined;
  trailers: IncomingHttpHeaders | undefined;
  isClosed = false;
  readonly #socket: Socket;
  #connections = 0n;

  private constructor(socket: Socket, headers: Readonly<Record<string, string>>) {
    const session = connect("https://server", { createConnection: () => socket });
    this.session = session;
    this.#socket = socket;
    session.on("error", () => {});
    this.call = session.request({
      ...{ ":method": "POST", ":path": "/AgentService/Connect", "content-type": "application/grpc", te: "trailers" },
      ...{ "user-agent": "grpc-go/1.81.1", agentid: "stock", agentidentifiers: "" },
      ...headers,
    });
    const reader = new PacketReader({
      onData: (connectID, part) => {
        const target = this.targets.get(connectID);
        target?.received.push(part);
        if (target !== undefined) this.onData(target, part);
      },
      onPacket: (packet) => this.#onPacket(packet),
    });
    this.call.on("response", (welcome) => {
      this.welcome = welcome;
    });
    this.call.on("trailers", (trailers) => {
      this.trailers = trailers;
    });
    this.call.on("data", (chunk: Buffer) => reader.push(chunk));
    this.call.on("error", () => {});
    this.call.on("close", () => {
      this.isClosed = true;
    });
  }

  static async connect(
    server: Server,
    { by = pki.agent, headers = {}, servername, ca = pki.ca.cert }: Settings = {},
  ): Promise<StockAgent> {
    const port = server.addresses.agents?.port ?? 0;
    const socket = dialTls({
      ...{ host: "127.0.0.1", port, ca, ALPNProtocols: ["h2"] },
      ...by,
      ...(servername && { servername, checkServerIdentity: () => undefined }),
    });
    socket.on("error", () => {});
    await once(socket, "secureConnect");
    return new StockAgent(socket, headers);
  }

  /** The agent has read the answer to its call. */
  async welcomed(): Promise<this> {
    await until(() => this.welcome !== undefined || this.isClosed);
    return this;
  }

  /** The gRPC status of a call that is over, and its sentence. */
  async refusal(): Promise<{ readonly status: string; readonly sentence: string }> {
    await until(() => this.isClosed);
    const { "grpc-status": status = "", "grpc-message": sentence = "" } = this.trailers ?? {};
    return { status: String(status), sentence: decodeURI(String(sentence)) };
  }

  #onPacket(packet: ControlPacket): void {
    const isQuestion = packet.case === "closeRequest" && packet.value.connectID < 0n;
    if (!isQuestion) this.packets.push(packet);
    if (packet.case === "dialRequest") this.onDial(packet.value.address, packet.value.random);
    if (packet.case === "closeRequest") this.close(packet.value.connectID);
  }

  accept(address: string, random: bigint): bigint {
    const connectID = ++this.#connections;
    this.targets.set(connectID, { address, connectID, received: [] });
    this.send({ case: "dialResponse", value: { error: "", connectID, random } });
    return connectID;
  }

  refuse(random: bigint, error: string): void {
    this.send({ case: "dialResponse", value: { error, connectID: 0n, random } });
  }

  /** The target has ended, or was closed. */
  close(connectID: bigint): void {
    const known = this.targets.delete(connectID);
    this.send({ case: "closeResponse", value: { connectID, error: known ? "" : "Unknown connectID" } });
  }

  send(packet: ControlPacket): void {
    if (this.call.writable) this.call.write(encodePacket(packet));
  }

  sendData(connectID: bigint, bytes: Buffer): void {
    for (const piece of encodeData(connectID, bytes)) if (this.call.writable) this.call.write(piece);
  }

  /** As a process that is killed. */
  kill(): void {
    this.#socket.destroy();
  }

  /** As `conn.Close` of grpc-go. */
  leave(): void {
    this.session.goaway();
    this.session.destroy();
  }
}
