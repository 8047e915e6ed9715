import { isIPv4, isIPv6 } from "node:net";
import { contains, parseCidr } from "../address/network.ts";

/** Questions that the functions of a script ask outside of their sandbox. They wait for the answer. */
export interface PacSurroundings {
  /** The addresses of a name, in the order in which they are tried; none if it has none. */
  addressesOf(host: string): readonly string[];
  /** This machine's addresses: those that connections to other networks come from. */
  ownAddresses(): readonly string[];
  now(): Date;
}

export type PacValue = string | number | boolean | null | undefined;
export type PacFunction = (...values: readonly PacValue[]) => PacValue;

/**
 * The functions that browsers give to a PAC script, and those of Windows for IPv6, whose names end with `Ex`. Their
 * answers follow Chromium and Firefox, also where they cannot answer (docs/decisions/0047-pac-as-in-browsers.md).
 */
export function pacFunctions(around: PacSurroundings): Readonly<Record<string, PacFunction>> {
  const ipv4Of = (host: string): string | undefined =>
    isIPv4(host) ? host : around.addressesOf(host).find((address) => isIPv4(address));
  const inSpan = (values: readonly PacValue[], match: (now: Date, rest: readonly string[]) => boolean): boolean => {
    const isGmt = values.at(-1) === "GMT";
    const rest = (isGmt ? values.slice(0, -1) : values).map(String);
    return match(isGmt ? asGmt(around.now()) : around.now(), rest);
  };
  return {
    isPlainHostName: (host) => !/[.:]/.test(String(host)),
    dnsDomainIs: (host, domain) => String(host).endsWith(String(domain)),
    localHostOrDomainIs: (host, name) => host === name || String(name).startsWith(`${host}.`),
    dnsDomainLevels: (host) => String(host).split(".").length - 1,
    shExpMatch: (text, pattern) => shellExpression(String(pattern)).test(String(text)),

    dnsResolve: (host) => ipv4Of(String(host)) ?? null,
    isResolvable: (host) => ipv4Of(String(host)) !== undefined,
    myIpAddress: () => around.ownAddresses().find((address) => isIPv4(address)) ?? "127.0.0.1",
    convert_addr: (address) => (isIPv4(String(address)) ? numberOf(String(address)) : 0),
    isInNet(host, network, mask) {
      if (!isIPv4(String(network)) || !isIPv4(String(mask))) return false;
      const address = ipv4Of(String(host));
      const bits = numberOf(String(mask));
      return address !== undefined && (numberOf(address) & bits) === (numberOf(String(network)) & bits);
    },

    dnsResolveEx: (host) => around.addressesOf(String(host)).join(";"),
    isResolvableEx: (host) => around.addressesOf(String(host)).length > 0,
    myIpAddressEx: () => around.ownAddresses().join(";"),
    isInNetEx: (address, prefix) => isIn(String(address), String(prefix)),
    sortIpAddressList: (list) => sorted(String(list)),
    getClientVersion: () => "1.0",

    weekdayRange: (...values) => inSpan(values, isWeekday),
    dateRange: (...values) => inSpan(values, isDate),
    timeRange: (...values) => inSpan(values, isTime),

    // Browsers show it in a window or their log. A script that runs for each connection would fill ours.
    alert: () => undefined,
  };
}

/**
 * As in browsers: `*` and `?` have the meaning of a shell, a dot is itself, and the rest is a regular expression:
 * scripts rely on `(a|b)`.
 */
function shellExpression(pattern: string): RegExp {
  return new RegExp(`^${pattern.replaceAll(".", "\\.").replaceAll("*", ".*").replaceAll("?", ".")}$`);
}

/** An IPv4 address as a number with a sign, as scripts compare it by `&`. */
function numberOf(address: string): number {
  return address.split(".").reduce((number, byte) => (number << 8) | Number(byte), 0);
}

/** Only addresses are compared: a name is in no network. */
function isIn(address: string, prefix: string): boolean {
  if (!prefix.includes("/")) return false;
  try {
    return contains(parseCidr(prefix), parseCidr(address));
  } catch {
    return false;
  }
}

/** IPv6 comes first, as Windows has it; `false` if one of the entries is no address. */
function sorted(list: string): string | false {
  const entries = list.split(";").map((entry) => entry.trim());
  const keys = new Map(entries.map((entry) => [entry, sortKey(entry)]));
  if ([...keys.values()].includes(undefined)) return false;
  return entries.toSorted((one, other) => ((keys.get(one) ?? "") < (keys.get(other) ?? "") ? -1 : 1)).join(";");
}

/** A text that is compared in place of the address. */
function sortKey(address: string): string | undefined {
  if (isIPv4(address)) return `1 ${address.split(".").map((byte) => byte.padStart(3, "0"))}`;
  if (!isIPv6(address) || address.includes("%")) return undefined;
  const [head = [], tail] = new URL(`http://[${address}]`).hostname
    .slice(1, -1)
    .split("::")
    .map((part) => part.split(":").filter((group) => group !== ""));
  const zeros = tail === undefined ? [] : Array(8 - head.length - tail.length).fill("0");
  return `0 ${[...head, ...zeros, ...(tail ?? [])].map((group) => group.padStart(4, "0"))}`;
}

const WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/** The same time, whose local fields are those that the other one has in GMT. */
function asGmt(now: Date): Date {
  return new Date(
    ...([now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()] as const),
    ...([now.getUTCHours(), now.getUTCMinutes(), now.getUTCSeconds()] as const),
  );
}

/** `MON`, or `MON, FRI`. */
function isWeekday(now: Date, [first = "", last = first]: readonly string[]): boolean {
  const [from, to] = [WEEKDAYS.indexOf(first), WEEKDAYS.indexOf(last)];
  return from >= 0 && to >= 0 && isBetween([from], [now.getDay()], [to]);
}

/** A day, month or year, or two of them; or two dates of several such fields: `1, "JUN", 15, "AUG"`. */
function isDate(now: Date, fields: readonly string[]): boolean {
  const from = dateFields(fields.length === 1 ? fields : fields.slice(0, fields.length / 2));
  const to = fields.length === 1 ? from : dateFields(fields.slice(fields.length / 2));
  const current = { year: now.getFullYear(), month: now.getMonth(), day: now.getDate() };
  const names = (["year", "month", "day"] as const).filter((name) => from?.[name] !== undefined);
  if (from === undefined || to === undefined || names.length === 0) return false;
  if (fields.length % 2 === 1 && fields.length !== 1) return false;
  if (Object.keys(from).sort().join() !== Object.keys(to).sort().join()) return false;
  const of = (date: DateFields): number[] => names.map((name) => date[name] ?? 0);
  return isBetween(of(from), of(current), of(to));
}

type DateFields = Partial<Record<"year" | "month" | "day", number>>;

/** `undefined`: one of them is neither a month nor a number, or two are of the same kind. */
function dateFields(texts: readonly string[]): DateFields | undefined {
  const fields: DateFields = {};
  for (const text of texts) {
    const month = MONTHS.indexOf(text);
    const number = Number.parseInt(text, 10);
    const name = month >= 0 ? "month" : number < 32 ? "day" : "year";
    if ((month < 0 && Number.isNaN(number)) || name in fields) return undefined;
    fields[name] = month >= 0 ? month : number;
  }
  return fields;
}

/** An hour, or two of hours, hours and minutes, or hours, minutes and seconds. The end is in the span. */
function isTime(now: Date, texts: readonly string[]): boolean {
  const numbers = texts.map((text) => Number.parseInt(text, 10));
  if (![1, 2, 4, 6].includes(numbers.length) || numbers.some(Number.isNaN)) return false;
  const half = Math.ceil(numbers.length / 2);
  const [from, to] = [numbers.slice(0, half), numbers.slice(-half)];
  const current = [now.getHours(), now.getMinutes(), now.getSeconds()].slice(0, half);
  // Browsers compare two hours alone without a thought of midnight.
  return half === 1 ? order(from, current) <= 0 && order(current, to) <= 0 : isBetween(from, current, to);
}

/** Whether `current` is in a span that goes round where its end is before its beginning. */
function isBetween(from: readonly number[], current: readonly number[], to: readonly number[]): boolean {
  const [isAfter, isBefore] = [order(from, current) <= 0, order(current, to) <= 0];
  return order(from, to) <= 0 ? isAfter && isBefore : isAfter || isBefore;
}

/** Less than 0: the first comes before the other. */
function order(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((number, index) => number !== other[index]);
  return at < 0 ? 0 : (one[at] ?? 0) - (other[at] ?? 0);
}
