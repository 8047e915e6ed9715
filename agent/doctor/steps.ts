import type { RouteFaultCode } from "../../shared/dial/fault.ts";
import type { Relation } from "../../shared/tls/server-certificate.ts";

/** What is looked at, in this order. */
export const STEPS = [
  "configuration",
  "way out",
  "dns",
  "tcp",
  "proxy",
  "tls",
  "upgrade",
  "inner tls",
  "admission",
  "clock",
  "echo",
  "upload",
  "download",
] as const;
export type StepName = (typeof STEPS)[number];

/** Who or what stands in the way, in one word: those of ways out, and what comes behind them. */
export type Culprit =
  | RouteFaultCode
  | "proxy_silent"
  | "kdc_silent"
  // our own files and clock
  | "configuration"
  | "no_credential"
  | "agent_expired"
  | "agent_not_yet_valid"
  | "token_expired"
  | "ca_expired"
  | "clock"
  // TLS
  | "unknown_ca"
  | "intercepted"
  | "outer_ca"
  | "inner_tls_never"
  | "server_expired"
  | "server_not_yet_valid"
  | "wrong_name"
  | "wrong_usage"
  | "unknown_name"
  | "no_tls"
  | "tls"
  // HTTP and the WebSocket
  | "grpc_server"
  | "upgrade_stripped"
  | "web_page"
  | "redirected"
  | "gateway"
  | "wrong_path"
  | "callers_port"
  | "no_answer"
  | "not_admitted"
  | "certificate_unseen"
  // inner TLS
  | "inner_tls_off"
  | "inner_untrusted"
  | "inner_tls"
  // the tunnel
  | "lost"
  | "held_back";

/** What is wrong at a step. */
export interface Finding {
  readonly culprit: Culprit;
  /** Whose it is: the server's name, a proxy, an issuer, a file. */
  readonly by: string;
  /** A way out, and who named its proxy; absent: it is no proxy. */
  readonly proxyFrom?: string;
  /** Of the way to the script of --pac, and not to a server or proxy. */
  readonly isOfScript?: boolean;
  /** Who opens TLS on the way; absent: nobody does. */
  readonly openedBy?: string;
  /** Of a TLS handshake: somebody closes the connection in it, or nobody answers; absent: TLS has words for it. */
  readonly handshake?: "cut" | "silent";
  /** Of a certificate of none of our CAs: how it stands to `--ca-cert`. */
  readonly relation?: Relation;
  /** Of a certificate for another name: for whom it is. */
  readonly names?: string;
  /** Of a certificate that is not a server's: it is a client's. */
  readonly isClients?: boolean;
  /** Of a certificate or token that is out of its time, ms since 1970: tells whether the clock is to blame. */
  readonly validFrom?: number;
  readonly validTo?: number;
  /** Of the server's refusal: by its clock, what we have shown is out of its time. */
  readonly outOfTime?: "ended" | "early";
}

export interface Step {
  readonly step: StepName;
  readonly state: "passed" | "failed" | "skipped" | "not reached";
  /** How long it took; absent where nothing was done. */
  readonly ms?: number;
  /** One line for a person. */
  readonly detail: string;
  readonly finding?: Finding;
  /** What else is wrong there. */
  readonly others?: readonly Finding[];
  /** The clock's: how far this machine is ahead of the server. */
  readonly aheadMs?: number;
  /** Of TLS, outside and inside: from the certificate that was shown upwards. */
  readonly chain?: readonly ChainLink[];
  /** Of TLS outside: who opens it on the way, and may. */
  readonly openedBy?: string;
}

export interface ChainLink {
  readonly subject: string;
  readonly issuer: string;
  readonly validFrom: string;
  readonly validTo: string;
}

/** What a step has found out: a value for the steps behind it, or a finding, with which they may still go on. */
export interface Passed<T> extends Pick<Step, "detail" | "finding" | "others" | "aheadMs" | "chain" | "openedBy"> {
  readonly value: T;
}

/** Nothing behind this step can be reached. */
export class StepFailed extends Error {
  readonly finding: Finding;
  readonly chain: readonly ChainLink[] | undefined;

  constructor(
    finding: Finding,
    detail: string,
    { chain, cause }: { chain?: readonly ChainLink[]; cause?: unknown } = {},
  ) {
    super(detail, { cause });
    this.finding = finding;
    this.chain = chain;
  }
}

/** Steps as they are done, each told at once. */
export class StepLog {
  readonly steps: Step[] = [];
  readonly #onStep: (step: Step) => void;

  constructor(onStep: (step: Step) => void) {
    this.#onStep = onStep;
  }

  /** Rejects with its `StepFailed`. */
  async run<T>(step: StepName, look: () => Passed<T> | Promise<Passed<T>>): Promise<T> {
    const startedAt = performance.now();
    const ms = () => Math.round((performance.now() - startedAt) * 10) / 10;
    try {
      const { value, ...seen } = await look();
      this.add({ step, state: seen.finding === undefined ? "passed" : "failed", ms: ms(), ...seen });
      return value;
    } catch (error) {
      if (error instanceof StepFailed) {
        const { message: detail, finding, chain } = error;
        this.add({ step, state: "failed", ms: ms(), detail, finding, ...(chain && { chain }) });
      }
      throw error;
    }
  }

  add(step: Step): void {
    this.steps.push(step);
    this.#onStep(step);
  }

  /** There is nothing to look at. */
  skip(step: StepName, detail: string): void {
    this.add({ step, state: "skipped", detail });
  }

  /** The steps that were not taken: those behind a failed one were not reached, others not asked for. */
  finish(): readonly Step[] {
    const failed = this.steps.some(({ state }) => state === "failed");
    for (const step of STEPS) {
      if (this.steps.some((done) => done.step === step)) continue;
      this.add(
        failed
          ? { step, state: "not reached", detail: "" }
          : { step, state: "skipped", detail: "not asked for (--seconds 0)" },
      );
    }
    return this.steps;
  }
}
