/** Where a server can be reached by its peers. */
export interface Location {
  readonly serverId: string;
  /** `host:port` of its `--peer-address`. */
  readonly address: string;
}

/** What is asked for: a server that has agents of this cluster, or the server with this id. */
export type DirectoryQuestion = { readonly cluster: string } | { readonly server: string };

/** Whether the directory can be asked, and why not. */
export type DirectoryState =
  | {
      readonly isUp: true;
      readonly through: string;
      /** What hinders it although it is connected, in sentences for operators. */
      readonly faults?: readonly string[];
      /** No question comes through. */
      readonly isRefused?: boolean;
      /** Why an agent may be at another server that was not found: the end of a sentence for callers. */
      readonly trouble?: string | undefined;
    }
  | { readonly isUp: false; readonly reason: string; readonly sinceMs: number };

/** Whether other servers can be asked now. */
export function canAsk(state: DirectoryState): boolean {
  return state.isUp && state.isRefused !== true;
}

/**
 * Says which server holds which cluster. It is trusted with nothing else: whoever forges an answer leads a server to
 * a peer that cannot prove its certificate, or that has no agent of the cluster (docs/fleet.md).
 */
export interface Directory {
  /** From now on this server answers questions about the cluster, as long as it `takesStreams` for it. */
  hold(cluster: string, takesStreams: () => boolean): void;
  release(cluster: string): void;
  /**
   * Resolves with the first answer that `accepts` takes; `undefined`: nobody gives one in time, or the directory cannot
   * be asked now. Never rejects.
   */
  ask(question: DirectoryQuestion, accepts: (location: Location) => boolean): Promise<Location | undefined>;
  readonly state: DirectoryState;
  /** Answers and asks nothing more. */
  close(): Promise<void>;
}
