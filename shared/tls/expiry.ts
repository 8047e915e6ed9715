import { certificates, NO_SERVER_AUTH, type Validity } from "./tls-material.ts";

/** Something with an end that this process shows to others, or believes others by. */
export interface Expiring extends Validity {
  /** One of a few words of ours: the label of its metric. */
  readonly role: string;
  /** Whose document names it; empty: a flag does. */
  readonly cluster: string;
  readonly thing: "certificate" | "CA" | "token";
  /** The flag, or the key of a document, that names it. */
  readonly by: string;
  /** What follows from its end: `agents refuse this server`. */
  readonly consequence: string;
  /** What tells it from another one with the same dates. */
  readonly content: string;
  /** Where it stands, for the log. */
  readonly fields: { readonly cluster?: string; readonly file?: string };
}

/** How something stands by its dates and its usage, if that is worth a word; `noticeMs`: it ends within so long. */
export type LifeStage =
  | { readonly state: keyof typeof UNUSABLE }
  | { readonly state: "ending"; readonly noticeMs: number };

const UNUSABLE = { over: "has expired", early: "is not yet valid", unsuitable: NO_SERVER_AUTH } as const;

const DAY_MS = 86_400_000;
/**
 * Notice is given twice. What lives for days or hours is renewed shortly before its end (Kubernetes replaces a token in
 * the last fifth of its life), so there it is a part of its whole life.
 */
const NOTICES = [
  { ms: 7 * DAY_MS, part: 1 / 12 },
  { ms: 30 * DAY_MS, part: 1 / 6 },
] as const;

/** `undefined`: its time is now, and its end is far. */
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
export function expirySentence(expiring: Expiring, stage: LifeStage): string {
  const what = `the ${expiring.thing} of ${expiring.by}`;
  const { consequence } = expiring;
  if (stage.state === "ending") return `${what} ends within ${inWords(stage.noticeMs)}: ${consequence} from then on`;
  return `${what} ${UNUSABLE[stage.state]}: ${consequence}`;
}

/** What ends soon, has ended or has not begun, for the log. */
export function* expiryConditions(inUse: Iterable<Expiring>, now: Date) {
  for (const expiring of inUse) {
    const stage = lifeStageOf(expiring, now);
    if (stage === undefined) continue;
    const { role, content, notBefore, notAfter } = expiring;
    const level: "warn" | "error" = stage.state === "ending" ? "warn" : "error";
    const fields = { ...expiring.fields, notBefore, notAfter };
    yield { level, fields, message: expirySentence(expiring, stage), content: `${role}\n${content}` };
  }
}

/** What ends soon, has ended or has not begun, for `readyz`. */
export function expiryWarnings(inUse: Iterable<Expiring>, now: Date): string[] {
  const warnings: string[] = [];
  for (const expiring of inUse) {
    const stage = lifeStageOf(expiring, now);
    if (stage === undefined) continue;
    const { cluster, notAfter } = expiring;
    const whose = cluster === "" ? "" : `cluster "${cluster}": `;
    warnings.push(`${whose}${expirySentence(expiring, stage)} (${notAfter.toISOString()})`);
  }
  return warnings;
}

function inWords(ms: number): string {
  const units = [
    [DAY_MS, "day"],
    [3_600_000, "hour"],
    [60_000, "minute"],
  ] as const;
  // A certificate made for 30 days lives for a minute more or less: 2 days are not to be 48 hours.
  const [size, unit] = units.find(([each]) => ms >= 2 * each) ?? [1_000, "second"];
  return `${Math.round(ms / size)} ${unit}s`;
}

/** When the CAs of a PEM file end: one that was renewed under its name stands beside its old certificate. */
export class AuthorityEnds {
  readonly pem: string;
  readonly #latest: readonly Validity[];

  constructor(pem: string) {
    this.pem = pem;
    const latest = new Map<string, Validity>();
    for (const { subject, validFrom, validTo } of certificates(pem)) {
      const validity = { notBefore: new Date(validFrom), notAfter: new Date(validTo) };
      const known = latest.get(subject);
      if (known === undefined || known.notAfter < validity.notAfter) latest.set(subject, validity);
    }
    this.#latest = [...latest.values()].sort((one, other) => one.notAfter.getTime() - other.notAfter.getTime());
  }

  /** Of the one that ends next; of the last one, where all have ended. */
  next(now: Date): Validity | undefined {
    return this.#latest.find(({ notAfter }) => notAfter > now) ?? this.#latest.at(-1);
  }
}
