/** The rules of scripts/prose.mjs for the text of one file: each function returns its findings as `{ line, fault }`. */
const COLUMNS = 120;
const CELL_WORDS = 30;

/** Words that point at something that the reader has to look for, before it is named or in another sentence. */
const POINTERS = "What|Who|Whoever|That|Those";
/** `One` before one of these words, a verb or a comma is a pronoun; before a noun it is a number. */
const AFTER_PRONOUN =
  "that|which|who|whose|with|without|is|was|has|had|can|cannot|may|must|would|does|in|for|from|by|to|at|on|as|more";
const POINTING = new RegExp(`^(?:(?:${POINTERS})\\b|One (?:${AFTER_PRONOUN})\\b|One,)`);

/** Lines of prose, and comments, that are wider than 120 columns, although they could be broken. */
export function wideLines(text, isMarkdown) {
  const lines = isMarkdown ? proseLines(text).filter(({ text }) => !isTableRow(text)) : commentLines(text);
  return lines
    .filter(({ text }) => [...text.replaceAll(/<!--=[\w-]+-->|<!--\/-->/g, "")].length > COLUMNS)
    .filter(({ text }) => /\S\s+\S/.test(text.replace(/^\s*(?:[-*]|\/\/|\d+\.)\s+/, "")))
    .map(({ line }) => ({ line, fault: `is longer than ${COLUMNS} columns` }));
}

/** Rows of tables that are broken over two lines, and cells with more than 30 words. */
export function badRows(text) {
  return proseLines(text).flatMap(({ text, line }) => {
    if (!isTableRow(text)) {
      return /\s\|$/.test(text) ? [{ line, fault: "ends like a row of a table, and does not begin with |" }] : [];
    }
    const most = Math.max(...text.split(/(?<!\\)\|/).map((cell) => wordsOf(cell).length));
    return most > CELL_WORDS ? [{ line, fault: `has a table cell of ${most} words; at most ${CELL_WORDS}` }] : [];
  });
}

/** Sentences that begin with What, Who, Whoever, That, Those, or with One as a pronoun. Questions may. */
export function pointingSentences(text, isMarkdown) {
  const paragraphs = isMarkdown ? markdownParagraphs(text) : commentParagraphs(text);
  return paragraphs.flatMap(({ line, text }) =>
    sentencesOf(text)
      .filter((sentence) => POINTING.test(sentence) && !sentence.endsWith("?"))
      .map((sentence) => ({
        line,
        fault: `has a sentence that begins with "${wordsOf(sentence).slice(0, 5).join(" ")}"`,
      })),
  );
}

function wordsOf(text) {
  return text
    .replaceAll(/\]\([^)]*\)/g, "]")
    .split(/\s+/)
    .filter((word) => word !== "");
}

function sentencesOf(text) {
  return text
    .replaceAll(/\*\*|<!--.*?-->/g, "")
    .split(/(?<=[.!?][)"”]?)\s+/)
    .map((sentence) => sentence.trim());
}

function numbered(text) {
  return text.split("\n").map((line, index) => ({ text: line, line: index + 1 }));
}

function commentLines(text) {
  return numbered(text).filter(({ text }) => /^\s*(?:\/\/|\/\*\*|\*)\s|\s\/\/\s[^"'`]*$/.test(text));
}

/** Lines of Markdown outside code blocks. */
function proseLines(text) {
  let isCode = false;
  return numbered(text).filter(({ text }) => {
    const isFence = text.trimStart().startsWith("```");
    if (isFence) isCode = !isCode;
    return !isCode && !isFence;
  });
}

function isTableRow(text) {
  return text.trimStart().startsWith("|");
}

/** Each cell of a table, each item of a list and each paragraph as one text; headings are left out. */
function markdownParagraphs(text) {
  const paragraphs = [];
  let last = -1;
  for (const { text: content, line } of proseLines(text)) {
    if (isTableRow(content)) {
      for (const cell of content.split(/(?<!\\)\|/)) paragraphs.push({ line, text: cell.trim() });
    } else if (content.trim() !== "" && !content.startsWith("#")) {
      const item = content.replace(/^\s*(?:[-*]|\d+\.|>)\s+/, "");
      const continues = line === last + 1 && item === content;
      if (continues) paragraphs.at(-1).text += ` ${content.trim()}`;
      else paragraphs.push({ line, text: item.trim() });
      last = line;
    }
  }
  return paragraphs;
}

/** Each comment as one text; a TSDoc tag and an empty line of a comment begin another one. */
function commentParagraphs(text) {
  const paragraphs = [];
  let last = -1;
  for (const { text: content, line } of commentLines(text)) {
    const isWhole = /^\s*(?:\/\/|\/\*\*|\*)/.test(content);
    const words = content
      .replace(isWhole ? /^\s*(?:\/\/|\/\*\*|\*)\s?/ : /^.*\s\/\/\s/, "")
      .replace(/\s*\*\/\s*$/, "")
      .replace(/^(?:@\w+|-|\d+\.)\s+/, "\0");
    const continues = isWhole && line === last + 1 && !words.startsWith("\0") && words.trim() !== "";
    if (continues && !/^\s*\/\*\*/.test(content)) paragraphs.at(-1).text += ` ${words.trim()}`;
    else paragraphs.push({ line, text: words.replace("\0", "").trim() });
    last = isWhole ? line : -1;
  }
  return paragraphs;
}
