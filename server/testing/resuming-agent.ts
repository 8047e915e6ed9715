import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { after } from "node:test";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello } from "../../shared/link/control.ts";
import { type Dialled, dialAgain, dialCarrier } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { LinkOwners } from "../tunnels/links.ts";
import { callerOf, dialOptions, HELLO, pki, type TestServer } from "./server.ts";
import { OpenCaller } from "./tenants.ts";

type Resume = NonNullable<Hello["resume"]>;

/** No other server is known. */
export const NOBODY: LinkOwners = { open: () => Promise.reject(new Error("no server has this id")) };

/** The way to one server, in memory. */
export function leadingTo(owner: TestServer): LinkOwners {
  return {
    open: async (_serverId, facts) => {
      const [near, far] = duplexPair();
      owner.takeCarried(far, facts, "srv-b");
      return near;
    },
  };
}

/** An agent whose carriers the test opens, one by one; its targets echo. */
export class ResumingAgent {
  readonly server: TestServer;
  readonly link: Link;
  readonly session: Session;
  readonly key: LinkKey;
  carrier: Carrier;

  private constructor(server: TestServer, { carrier, welcome }: Dialled) {
    const { link, key, initialWindow, freshWindow = initialWindow } = welcome;
    this.server = server;
    this.carrier = carrier;
    this.key = LinkKey.parse(key);
    this.link = new Link(link, "server", carrier, { graceMs: 60_000, replayBytes: 1 << 24 });
    const handler = { onStream: (stream: Stream) => void echo(stream), onClosed: () => {} };
    this.session = new Session("client", this.link, handler, { initialWindow, freshWindow });
    after(() => this.session.destroy());
  }

  static async start(server: TestServer, hello = HELLO, by = pki.agent): Promise<ResumingAgent> {
    return new ResumingAgent(server, await dial(server, hello, by));
  }

  /** The resume of an honest hello now, unless it names another link or offset; `key`: the key of its proof. */
  words(change: { link?: string; received?: number } = {}, key = this.key): Resume {
    return key.prove({ link: this.link.id, received: this.link.received, ...change });
  }

  /** Asks as an agent would, and goes on over the new carrier; `at`: the server that answers its dial. */
  async resume(hello = HELLO, by = pki.agent, at = this.server): Promise<void> {
    this.link.acks.hold();
    const resume = this.words();
    const { carrier, resumed } = await dialAgain(dialOptions(at, { ...hello, resume }, by));
    assert.ok(this.key.isAnswer(this.link.id, resumed));
    this.carrier = carrier;
    this.link.resume(carrier, "server", { peerReceived: resumed.received, named: resume.received });
    this.link.acks.now();
  }
}

export function dial(server: TestServer, hello: Hello, by?: CertificateAndKey) {
  return dialCarrier(dialOptions(server, hello, by));
}

export async function echo(stream: Stream): Promise<void> {
  stream.on("error", () => {});
  stream.accept();
  await readOpen(stream, 5_000);
  stream.write(encodeAnswer({ ok: true, address: "10.0.0.1:1" }));
  stream.pipe(stream);
}

/** The code with which a hello is refused. */
export async function refusalOf(server: TestServer, hello: Hello, by?: CertificateAndKey): Promise<number | undefined> {
  const dialled = hello.resume === undefined ? dial(server, hello, by) : dialAgain(dialOptions(server, hello, by));
  const error = await dialled.then(
    ({ carrier }) => {
      carrier.destroy();
      return new Error("it was accepted");
    },
    (reason) => reason,
  );
  if (!(error instanceof LinkRefused)) throw error;
  return error.closeCode;
}

/** A connection through the tunnel that sends words and waits for their echo. */
export async function connection(server: TestServer): Promise<(words: string) => Promise<void>> {
  const caller = await OpenCaller.open(await callerOf(server, pki.caller));
  after(() => caller.socket.destroy());
  return (words) => caller.echo(words);
}

/** Whether resumes with this result were counted. */
export async function countsResume({ metrics }: TestServer, result: string, cause = "\\w+"): Promise<boolean> {
  const line = new RegExp(`^culvert_server_link_resumes_total\\{result="${result}",cause="${cause}"\\} [1-9]`, "m");
  return line.test(await metrics.registry.metrics());
}
