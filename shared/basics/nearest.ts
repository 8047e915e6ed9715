/** The known word nearest to a mistyped one, or `undefined` when none is near enough to be a guess. */
export function nearest(word: string, known: Iterable<string>): string | undefined {
  if (word.length > 100) return undefined;
  let best: string | undefined;
  // A third of the letters wrong is no typing error any more, and from one letter everything is near.
  let bestDistance = Math.min(Math.max(2, Math.floor(word.length / 3)) + 1, word.length);
  for (const candidate of known) {
    const distance = editDistance(word, candidate, bestDistance);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Damerau-Levenshtein distance (neighbours swapped count once); `limit` or more is returned as `limit`. */
export function editDistance(a: string, b: string, limit = Number.POSITIVE_INFINITY): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let before: number[] = [];
  let above = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (above[j - 1] ?? 0) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, (before[j - 2] ?? 0) + 1);
      }
      row.push(least);
    }
    before = above;
    above = row;
  }
  return Math.min(above[b.length] ?? 0, limit);
}
