/** A time in a sentence, as exact as anybody reads it: 4899 ms is "4.9 s", 60 ms is "0.06 s", 125 s stays. */
export function seconds(ms: number): string {
  const value = ms / 1_000;
  return `${Number(value < 10 ? value.toPrecision(2) : value.toFixed(0))} s`;
}
