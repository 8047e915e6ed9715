/**
 * Why a connection was not passed on, the label of the metric: `gone` ended before its ClientHello, as balancers' probes do;
 * `late`, `crowded` and `full` met a bound, `no_files` the one of the system; of the others some names are nobody's, and some backends cannot be reached.
 */
export type RefusalCode =
  | "gone"
  | "late"
  | "crowded"
  | "full"
  | "no_files"
  | "unreadable"
  | "no_name"
  | "unknown_name"
  | "unreachable";

/** A connection that is not passed on; `message` is for the log. */
export class Refusal extends Error {
  readonly code: RefusalCode;

  constructor(code: RefusalCode, message: string) {
    super(message);
    this.code = code;
  }

  /** It is told with an alert; others are cut, so that whoever is in front counts a failure. */
  get hasAlert(): boolean {
    return this.code === "unreadable" || this.code === "no_name" || this.code === "unknown_name";
  }
}
