import { ConfigError } from "../../shared/config/options.ts";
import { type CommandEntry, type OptionEntry, optionEntries } from "./commands.ts";

/** `culvert completion`: what a shell has to read for completion of our command line. Throws a `ConfigError`. */
export function completion(shell: string, entries: readonly CommandEntry[]): string {
  const write = SHELLS.get(shell);
  if (write === undefined)
    throw new ConfigError(`There is no completion for ${JSON.stringify(shell)}: bash, zsh, fish.`);
  return write(entries);
}

/** Kinds of values that are paths. */
const PATHS = new Set(["file", "folder", "path"]);

/** The words that a value may be, if there are a few. */
function choicesOf({ value }: OptionEntry): string[] {
  return value?.includes("|") === true ? value.split("|") : [];
}

/** The words after `culvert`, or "" for the program itself. */
function below({ name }: CommandEntry): string {
  return name.split(" ").slice(1).join(" ");
}

/** Names that may follow this command. */
function namesBelow(parent: CommandEntry, entries: readonly CommandEntry[]): readonly CommandEntry[] {
  const depth = parent.name.split(" ").length + 1;
  return entries.filter(({ name }) => name.startsWith(`${parent.name} `) && name.split(" ").length === depth);
}

function lastWord({ name }: CommandEntry): string {
  return name.slice(name.lastIndexOf(" ") + 1);
}

/** The first sentence: a list of completions has one line for each. */
function inShort(help: string): string {
  return /^.*?[^.][.](?= |$)|^[^.]*$/s.exec(help)?.[0].replace(/[.]$/, "") ?? help;
}

const flagsOf = ({ long, short }: OptionEntry): string[] => [long, ...(short === undefined ? [] : [short])];

// ── bash ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

function bash(entries: readonly CommandEntry[]): string {
  const values = entries.flatMap((entry) => optionEntries(entry).flatMap((option) => bashValue(below(entry), option)));
  const words = entries.map((entry) => {
    const names = namesBelow(entry, entries).flatMap((each) => [lastWord(each), ...each.aliases]);
    return `    "${below(entry)}") words="${[...names, ...optionEntries(entry).flatMap(flagsOf)].join(" ")}" ;;`;
  });
  return `# Completion of culvert for bash: source <(culvert completion bash)
_culvert() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} command= words= each
  # "=" is a word of its own here.
  if [[ $word == "=" ]]; then before=\${COMP_WORDS[COMP_CWORD-1]} word=
  elif [[ $before == "=" ]]; then before=\${COMP_WORDS[COMP_CWORD-2]}; fi
  for each in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $each == -* ]] && break
    command="\${command:+$command }$each"
  done
  case "$command" in
${entries.flatMap((entry) => entry.aliases.map((alias) => `    "${alias}") command="${below(entry)}" ;;`)).join("\n")}
  esac
  case "$command $before" in
${values.join("\n")}
  esac
  case "$command" in
${words.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -F _culvert culvert
`;
}

/** Where a value is expected: its words, files, or nothing, since we know none. */
function bashValue(command: string, option: OptionEntry): string[] {
  if (option.value === undefined || option.long === "--help") return [];
  const choices = choicesOf(option);
  const words = choices.length > 0 ? `compgen -W "${choices.join(" ")}"` : PATHS.has(option.value) ? "compgen -f" : "";
  const found = words === "" ? "()" : `($(${words} -- "$word"))`;
  const patterns = flagsOf(option).map((flag) => `"${command} ${flag}"`);
  return [`    ${patterns.join("|")}) COMPREPLY=${found}; return ;;`];
}

// ── zsh ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

function zsh(entries: readonly CommandEntry[]): string {
  return `#compdef culvert
# Completion of culvert for zsh: culvert completion zsh > "\${fpath[1]}/_culvert"
_culvert() {
  local -a commands
  local command=
  local -i at=2
  while (( at < CURRENT )) && [[ $words[at] != -* ]]; do
    command="\${command:+$command }$words[at]"
    (( at++ ))
  done
  case $command in
${entries.map((entry) => zshCase(entry, entries)).join("\n")}
  esac
}
# As a file of fpath this is the body of the function, which zsh calls to complete.
if [[ $funcstack[1] == _culvert ]]; then _culvert "$@"; else compdef _culvert culvert; fi
`;
}

function zshCase(entry: CommandEntry, entries: readonly CommandEntry[]): string {
  const commands = namesBelow(entry, entries).map((each) => `${lastWord(each)}:${inShort(each.summary)}`);
  const describe = commands.map((each) => quoted(each)).join(" ");
  const options = optionEntries(entry).map((option) => quoted(zshOption(option)));
  const patterns = [below(entry), ...entry.aliases].map((name) => `"${name}"`);
  return `    (${patterns.join("|")})
      commands=(${describe})
      (( \${#commands} )) && [[ $words[CURRENT] != -* ]] && _describe command commands
      shift $(( at - 2 )) words; (( CURRENT -= at - 2 ))
      _arguments ${options.join(" ")} '*: :_default' ;;`;
}

function zshOption(option: OptionEntry): string {
  const { long, value, help } = option;
  const text = inShort(help).replace(/[[\\\]:]/g, "\\$&");
  if (value === undefined || long === "--help") return `${long}[${text}]`;
  const choices = choicesOf(option);
  const action = choices.length > 0 ? `(${choices.join(" ")})` : PATHS.has(value) ? "_files" : " ";
  return `${long}=[${text}]:${choices.length > 0 ? "value" : value.replace(/:/g, "\\:")}:${action}`;
}

function quoted(text: string): string {
  return `'${text.replace(/'/g, "'\\''")}'`;
}

// ── fish ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

function fish(entries: readonly CommandEntry[]): string {
  const lines = entries.flatMap((entry) => {
    const here = fishCondition(entry);
    return [
      ...namesBelow(entry, entries).map(
        (each) => `complete -c culvert -n ${here} -f -a ${lastWord(each)} -d ${fishQuoted(inShort(each.summary))}`,
      ),
      ...optionEntries(entry).map((option) => `complete -c culvert -n ${here} ${fishOption(option)}`),
    ];
  });
  return `# Completion of culvert for fish: culvert completion fish > ~/.config/fish/completions/culvert.fish
function __culvert_is
  set -l words
  for word in (commandline -opc)[2..]
    string match -q -- '-*' $word; and break
    set -a words $word
  end
  contains -- "$words" $argv
end
complete -c culvert -f
${lines.join("\n")}
`;
}

function fishCondition(entry: CommandEntry): string {
  const names = [below(entry), ...entry.aliases].map((name) => `\\"${name}\\"`);
  return `"__culvert_is ${names.join(" ")}"`;
}

function fishOption(option: OptionEntry): string {
  const { long, short, value, help } = option;
  const choices = choicesOf(option);
  const takes = value === undefined || long === "--help" ? "" : PATHS.has(value) ? " -r -F" : " -x";
  const words = choices.length > 0 ? ` -a ${fishQuoted(choices.join(" "))}` : "";
  return `${short === undefined ? "" : `-s ${short.slice(1)} `}-l ${long.slice(2)}${takes}${words} -d ${fishQuoted(inShort(help))}`;
}

function fishQuoted(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}

const SHELLS = new Map([
  ["bash", bash],
  ["zsh", zsh],
  ["fish", fish],
]);
