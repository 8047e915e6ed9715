import { deferred } from "../../shared/basics/promises.ts";
import type { Welcome } from "../../shared/link/control.ts";
import type { Dialled } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

/** The agent's reaction to each stream, before ACK and head. */
export type TakesStream = (stream: Stream, agent: PlayedAgent) => unknown;

/** An agent that a test plays, for one connection: the real handshake over real TLS, then whatever the test says. */
export class PlayedAgent implements AsyncDisposable {
  readonly welcome: Welcome;
  readonly link: Link;
  readonly session: Session;
  /** Streams that arrived. */
  readonly streams: Stream[] = [];
  /** Resolves when the session is over, with the reason if it did not end cleanly. */
  readonly closed: Promise<Error | undefined>;

  /** `onLink` changes what the link says, before its session begins. */
  constructor({ carrier, welcome, remote }: Dialled, onStream: TakesStream, onLink: (link: Link) => void = () => {}) {
    this.welcome = welcome;
    this.link = new Link(welcome.link, remote, carrier, { graceMs: 0, replayBytes: 16 * 1024 * 1024 });
    onLink(this.link);
    const { promise, resolve } = deferred<Error | undefined>();
    this.closed = promise;
    const take = (stream: Stream) => {
      stream.on("error", () => {});
      this.streams.push(stream);
      onStream(stream, this);
    };
    const { initialWindow } = welcome;
    this.session = new Session("client", this.link, { onStream: take, onClosed: resolve }, { initialWindow });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.session.destroy();
  }
}
