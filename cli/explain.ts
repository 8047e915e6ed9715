import { Help } from "commander";
import { nearest } from "../shared/basics/text.ts";
import { helpWidth } from "../shared/config/help-width.ts";
import { ConfigError } from "../shared/config/options.ts";
import { type Explained, explainedCodes } from "./explained-codes.ts";

/** `culvert explain`: all codes with a line each, or what the pages say of one. Throws a `ConfigError`. */
export function runExplain(
  asked: string | undefined,
  print: (text: string) => void = (text) => process.stdout.write(text),
): void {
  const codes = explainedCodes();
  const width = helpWidth();
  if (asked === undefined) {
    const widest = Math.max(...[...codes.keys()].map((code) => code.length));
    for (const [code, [first]] of codes) print(`${clip(`${code.padEnd(widest)}  ${first?.inShort ?? ""}`, width)}\n`);
    return;
  }
  const code = asked.toLowerCase().replaceAll("-", "_");
  const explained = codes.get(code);
  if (explained === undefined) throw new ConfigError(unknownCode(asked, nearest(code, codes.keys())));
  print(`${explained.map((each) => shown(code, each, width)).join("\n\n")}\n`);
}

function shown(code: string, { page, inShort, paragraphs }: Explained, width: number): string {
  const heading = `${code} (${page})${inShort === paragraphs[0] || inShort === "" ? "" : `: ${inShort}`}`;
  const texts = paragraphs.map((text) => {
    const isItem = text.startsWith("- ");
    return isItem ? wrapped(text, width - 2).replaceAll("\n", "\n  ") : `\n${wrapped(text, width)}`;
  });
  return [heading, ...texts].join("\n");
}

function wrapped(text: string, width: number): string {
  return new Help().boxWrap(text, width);
}

function unknownCode(asked: string, guess: string | undefined): string {
  const cure = guess === undefined ? "culvert explain alone lists them" : `did you mean ${guess}?`;
  return `There is no code ${JSON.stringify(asked.slice(0, 60))}: ${cure}`;
}

function clip(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}
