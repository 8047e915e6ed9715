import type { Directory, DirectoryAnswer, DirectoryQuestion, DirectoryState, Location } from "../directory.ts";

/** For tests: the directory of several servers in one process. */
export class MemoryHub {
  readonly #members = new Map<string, MemoryDirectory>();
  /** Questions that were asked. */
  questions = 0;
  /** Set: what is answered, whatever is true. */
  forged: ((question: DirectoryQuestion) => Location | undefined) | undefined;

  /** Set: what hinders the directory of each, although it is connected. */
  hindered: Partial<DirectoryState> | undefined;

  /** Set: whoever could answer does not. */
  silent = false;

  join(location: Location): MemoryDirectory {
    const member = new MemoryDirectory(location, this);
    this.#members.set(location.serverId, member);
    return member;
  }

  leave(serverId: string): void {
    this.#members.delete(serverId);
  }

  answers(question: DirectoryQuestion): Location[] {
    this.questions++;
    const forged = this.forged?.(question);
    if (forged !== undefined) return [forged];
    const members = [...this.#members.values()].filter((member) => member.answers(question));
    return members.map(({ location }) => location);
  }

  /** Whether a server listens to the question, whatever it says. */
  isHeard(question: DirectoryQuestion): boolean {
    return this.silent || [...this.#members.values()].some((member) => member.hears(question));
  }

  /** The servers that hold the cluster now. */
  holders(cluster: string): string[] {
    return [...this.#members.values()]
      .filter((member) => member.answers({ cluster }))
      .map(({ location }) => location.serverId);
  }
}

class MemoryDirectory implements Directory {
  readonly location: Location;
  readonly #hub: MemoryHub;
  readonly #held = new Map<string, () => boolean>();

  constructor(location: Location, hub: MemoryHub) {
    this.location = location;
    this.#hub = hub;
  }

  get state(): DirectoryState {
    return { canAsk: true, detail: "connected", faults: [], trouble: undefined, ...this.#hub.hindered };
  }

  join(cluster: string, takesStreams: () => boolean): void {
    this.#held.set(cluster, takesStreams);
  }

  leave(cluster: string): void {
    this.#held.delete(cluster);
  }

  hears(question: DirectoryQuestion): boolean {
    return "server" in question || this.#held.has(question.cluster);
  }

  answers(question: DirectoryQuestion): boolean {
    return "cluster" in question
      ? this.#held.get(question.cluster)?.() === true
      : question.server === this.location.serverId;
  }

  async ask(question: DirectoryQuestion, accepts: (location: Location) => boolean): Promise<DirectoryAnswer> {
    const answers = this.#hub.silent ? [] : this.#hub.answers(question);
    return answers.length === 0 && this.#hub.isHeard(question) ? "silent" : answers.find(accepts);
  }

  async close(): Promise<void> {
    this.#hub.leave(this.location.serverId);
  }
}
