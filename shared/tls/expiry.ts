import { authoritiesOf, leavesIn } from "./authorities.ts";
import { NO_SERVER_AUTH, type Validity } from "./tls-material.ts";

/** A certificate, CA or token in use, with the end of its validity. */
export interface Expiring extends Validity {
  /** The label of its metric, one of a few fixed words. */
  readonly role: string;
  /** The cluster whose document names it; empty: a flag does. */
  readonly cluster: string;
  readonly thing: "certificate" | "CA" | "token";
  /** The flag, or the key in a document, that names it. */
  readonly by: string;
  /** The consequence of its end: `agents refuse this server`. */
  readonly consequence: string;
  /** Tells it from another one with the same dates. */
  readonly content: string;
  /** The names of leaves in the file of a CA. Nothing is verified by them. */
  readonly leaves?: readonly string[];
  /** Fields of the log line. */
  readonly fields: { readonly cluster?: string; readonly file?: string };
}

/** A stage that is worth a warning; `noticeMs`: it ends within this time. */
export type LifeStage =
  | { readonly state: keyof typeof UNUSABLE }
  | { readonly state: "ending"; readonly noticeMs: number };

const UNUSABLE = { over: "has expired", early: "is not yet valid", unsuitable: NO_SERVER_AUTH } as const;

const DAY_MS = 86_400_000;
/**
 * Two warnings before the end. Something that lives for days or hours is renewed shortly before its end (Kubernetes
 * replaces a token in the last fifth of its life), so the warning comes in the last part of its life.
 */
const NOTICES = [
  { ms: 7 * DAY_MS, part: 1 / 12 },
  { ms: 30 * DAY_MS, part: 1 / 6 },
] as const;

/** `undefined`: it is valid, and its end is far. */
export function lifeStageOf({ notBefore, notAfter, lacksServerAuth }: Validity, now: Date): LifeStage | undefined {
  const leftMs = notAfter.getTime() - now.getTime();
  if (leftMs <= 0) return { state: "over" };
  if (notBefore > now) return { state: "early" };
  if (lacksServerAuth) return { state: "unsuitable" };
  const lifeMs = notAfter.getTime() - notBefore.getTime();
  for (const { ms, part } of NOTICES) {
    const noticeMs = Math.min(ms, lifeMs * part);
    if (leftMs <= noticeMs) return { state: "ending", noticeMs };
  }
  return undefined;
}

/** A sentence for the log, and in `readyz`. */
function expirySentence(expiring: Expiring, stage: LifeStage): string {
  const what = `the ${expiring.thing} of ${expiring.by}`;
  const { consequence } = expiring;
  if (stage.state === "ending") return `${what} ends within ${inWords(stage.noticeMs)}: ${consequence} from then on`;
  return `${what} ${UNUSABLE[stage.state]}: ${consequence}`;
}

/** Certificates and tokens that end soon, have ended or have not begun, and leaves in place of CAs. */
function* notable(inUse: Iterable<Expiring>, now: Date) {
  for (const expiring of inUse) {
    const stage = lifeStageOf(expiring, now);
    if (stage !== undefined) yield { expiring, state: stage.state, sentence: expirySentence(expiring, stage) };
    const [leaf] = expiring.leaves ?? [];
    if (leaf === undefined) continue;
    const sentence = `"${leaf}" in the file of ${expiring.by} is a leaf, and no CA: nothing is verified by it`;
    yield { expiring, state: "leaf", sentence } as const;
  }
}

/** Certificates and tokens that end soon, have ended or have not begun, for the log. */
export function* expiryConditions(inUse: Iterable<Expiring>, now: Date) {
  for (const { expiring, state, sentence: message } of notable(inUse, now)) {
    const { role, content, notBefore, notAfter } = expiring;
    const level: "warn" | "error" = state === "ending" || state === "leaf" ? "warn" : "error";
    yield { level, fields: { ...expiring.fields, notBefore, notAfter }, message, content: `${role}\n${content}` };
  }
}

/** Certificates and tokens that end soon, have ended or have not begun, for `readyz`. */
export function expiryWarnings(inUse: Iterable<Expiring>, now: Date): string[] {
  return Array.from(notable(inUse, now), ({ expiring: { cluster, notAfter }, state, sentence }) => {
    const end = state === "leaf" ? "" : ` (${notAfter.toISOString()})`;
    return `${cluster === "" ? "" : `cluster "${cluster}": `}${sentence}${end}`;
  });
}

function inWords(ms: number): string {
  const units = [
    [DAY_MS, "day"],
    [3_600_000, "hour"],
    [60_000, "minute"],
  ] as const;
  // A certificate made for 30 days lives a minute more or less: 2 days are not written as 48 hours.
  const [size, unit] = units.find(([each]) => ms >= 2 * each) ?? [1_000, "second"];
  return `${Math.round(ms / size)} ${unit}s`;
}

/** When the CAs of a PEM file expire; of those with one name, renewed ones, the last counts. */
export class AuthorityEnds {
  #pem = "";
  #latest: readonly Validity[] = [];
  #leaves: readonly string[] = [];

  /**
   * The validity of the CA that expires next; of the last one if all have expired; with the leaves in the file. The
   * file is parsed once for each content.
   */
  next(pem: string, now: Date): (Validity & Pick<Expiring, "leaves">) | undefined {
    if (pem !== this.#pem) [this.#latest, this.#leaves] = [latestIn(pem), leavesIn(pem)];
    this.#pem = pem;
    const next = this.#latest.find(({ notAfter }) => notAfter > now) ?? this.#latest.at(-1);
    return next && { ...next, leaves: this.#leaves };
  }
}

function latestIn(pem: string): Validity[] {
  const latest = new Map<string, Validity>();
  for (const { subject, isLeaf, notBefore, notAfter } of authoritiesOf(pem)) {
    if (isLeaf) continue;
    const known = latest.get(subject);
    if (known === undefined || known.notAfter < notAfter) latest.set(subject, { notBefore, notAfter });
  }
  return [...latest.values()].sort((one, other) => one.notAfter.getTime() - other.notAfter.getTime());
}
