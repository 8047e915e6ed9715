import { ConfigError } from "../../shared/config/options.ts";
import { type CommandEntry, optionEntries } from "./commands.ts";

/**
 * `culvert manual`: the manual page of a command in the macros of man(7): `culvert manual server | man -l -`. Throws a
 * `ConfigError`.
 */
export function manualPage(name: string, entries: readonly CommandEntry[], version: string): string {
  const entry = entries.find((each) => each.name === name);
  if (entry === undefined)
    throw new ConfigError(`There is no command ${JSON.stringify(name)}: culvert --help lists them.`);
  const { command, summary } = entry;
  const title = name.replaceAll(" ", "-");
  const help = command.createHelp();
  const below = entries.filter((each) => each.name.startsWith(`${name} `));
  const sections = Object.entries(grouped(entry));
  return [
    `.TH ${title.toUpperCase()} 1 "" "culvert ${text(version)}" "culvert"`,
    ".SH NAME",
    `${text(title)} \\- ${text(summary)}`,
    ".SH SYNOPSIS",
    `.B ${text(help.commandUsage(command))}`,
    ...(command.description() === summary ? [] : [".SH DESCRIPTION", text(command.description())]),
    ...(below.length === 0 ? [] : [".SH COMMANDS", ...below.flatMap((each) => tagged(each.name, each.summary))]),
    ".SH OPTIONS",
    ...sections.flatMap(([title, lines]) => (sections.length > 1 ? [`.SS ${text(title)}`, ...lines] : lines)),
    ...(below.length === 0
      ? []
      : [".SH SEE ALSO", `${text(below.map((each) => each.name.replaceAll(" ", "-")).join("(1), "))}(1)`]),
    "",
  ].join("\n");
}

function grouped(entry: CommandEntry): Record<string, string[]> {
  const groups: Record<string, string[]> = {};
  const options = entry.command.createHelp().visibleOptions(entry.command);
  for (const [index, { long, short, value, help }] of optionEntries(entry).entries()) {
    const title = (options[index]?.helpGroupHeading ?? "Options").replace(/:$/, "");
    const flags = `${short === undefined ? "" : `${short}, `}${long}${value === undefined ? "" : ` ${value}`}`;
    groups[title] = [...(groups[title] ?? []), ...tagged(flags, help)];
  }
  return groups;
}

/** A term in bold, and its meaning. */
function tagged(term: string, meaning: string): string[] {
  return [".TP", `.B ${text(term)}`, text(meaning)];
}

/** Plain text for roff: backslashes and hyphens are escaped, and no line begins as a request does. */
function text(plain: string): string {
  const escaped = plain.replaceAll("\\", "\\e").replaceAll("-", "\\-");
  return escaped.replace(/^(?=[.'])/gm, "\\&");
}
