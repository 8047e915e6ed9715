/**
 * Does `value` consist of these pieces, in order, with any run of characters between them? They are what is left of a
 * pattern between its stars: `a*b` is `["a", "b"]`, and one piece alone is the value itself. Linear: no backtracking,
 * unlike a regular expression.
 */
export function matchesPieces(pieces: readonly string[], value: string): boolean {
  const first = pieces[0] ?? "";
  if (pieces.length <= 1) return value === first;
  const last = pieces.at(-1) ?? "";
  const end = value.length - last.length;
  if (end < first.length || !value.startsWith(first) || !value.endsWith(last)) return false;
  let from = first.length;
  for (const piece of pieces.slice(1, -1)) {
    const found = value.indexOf(piece, from);
    if (found < 0 || found + piece.length > end) return false;
    from = found + piece.length;
  }
  return true;
}

/**
 * Is there a value that matches both patterns, given as for `matchesPieces`? Two patterns with stars have one as soon as their
 * ends agree: what stands between the stars of one fits into a star of the other.
 */
export function piecesMeet(one: readonly string[], other: readonly string[]): boolean {
  if (one.length <= 1) return matchesPieces(other, one[0] ?? "");
  if (other.length <= 1) return matchesPieces(one, other[0] ?? "");
  const [start, otherStart] = [one[0] ?? "", other[0] ?? ""];
  const [end, otherEnd] = [one.at(-1) ?? "", other.at(-1) ?? ""];
  return (
    (start.startsWith(otherStart) || otherStart.startsWith(start)) && (end.endsWith(otherEnd) || otherEnd.endsWith(end))
  );
}
