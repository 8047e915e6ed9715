/** Cells of tables have at most 30 words (scripts/prose-rules.mjs); this leaves room for `CONTINUED`. */
const CELL_WORDS = 28;
const CONTINUED = " (continued below)";

/** The first sentences of a text that fit into the cell of a table, and the sentences that do not. */
export function cellOf(text: string): { readonly cell: string; readonly rest: string } {
  const sentences = text.split(/(?<=[.!?])\s+/);
  let taken = 1;
  while (taken < sentences.length && words(sentences.slice(0, taken + 1)) <= CELL_WORDS) taken++;
  if (words(sentences) <= CELL_WORDS + 2) taken = sentences.length;
  const rest = sentences.slice(taken).join(" ");
  return { cell: sentences.slice(0, taken).join(" ") + (rest === "" ? "" : CONTINUED), rest };
}

/** The list under a table with what its cells have left out. */
export function notesOf(notes: readonly (readonly [name: string, rest: string])[]): string[] {
  const lines = notes.filter(([, rest]) => rest !== "").flatMap(([name, rest]) => wrapped(`- \`${name}\`: ${rest}`));
  return lines.length === 0 ? [] : ["", ...lines];
}

function words(sentences: readonly string[]): number {
  return sentences.join(" ").split(/\s+/).length;
}

function wrapped(item: string): string[] {
  const lines: string[] = [];
  for (const word of item.split(" ")) {
    const last = lines.at(-1);
    if (last === undefined) lines.push(word);
    else if (last.length + 1 + word.length <= 120) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(`  ${word}`);
  }
  return lines;
}
