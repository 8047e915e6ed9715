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
