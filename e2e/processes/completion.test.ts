import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { before, test } from "node:test";
import { MAIN, RUNTIME, requireBuilt } from "../harness/processes.ts";
import { TempDir } from "../harness/temp.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

// A typed line whose last word is to be completed, and the words that are offered, or none.
const CASES: readonly (readonly [line: readonly string[], offered: readonly string[]])[] = [
  [["con"], ["connect"]],
  [
    ["server", "--log-"],
    ["--log-format", "--log-level"],
  ],
  [["server", "--log-level", "de"], ["debug"]],
  [["pki", "kub"], ["kubernetes"]],
  [["pki", "kubernetes", "--namesp"], ["--namespace"]],
  [["konnectivity-socks5-proxy", "--login"], ["--login-file"]],
  [["server", "--log-level", "debug", "--udsn"], []],
];

before(requireBuilt);

const run = (program: string, ...args: string[]) => execFileSync(program, args, { encoding: "utf8" });
const scriptFor = (shell: string) => run(RUNTIME, MAIN, "completion", shell);

function written(dir: TempDir, shell: string): string {
  writeFileSync(dir.file("completion"), scriptFor(shell));
  return dir.file("completion");
}

test("bash completes commands, options and their values, files too", () => {
  using dir = new TempDir();
  const script = written(dir, "bash");
  const ask = `source "$1"; shift; COMP_WORDS=(culvert "$@") COMP_CWORD=$#; _culvert; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const offered = (...line: string[]) =>
    run("bash", "-c", ask, "bash", script, ...line)
      .split("\n")
      .filter(Boolean);
  for (const [line, words] of CASES) assert.deepEqual(offered(...line).sort(), words);
  assert.deepEqual(offered("server", "--log-level", "=", "fa"), ["fatal"]);
  assert.deepEqual(offered("server", "--server-cert", `${dir.path}/comp`), [script]);
});

test("fish completes commands, options and their values", { skip: missingProgram("fish") }, () => {
  using dir = new TempDir();
  const script = written(dir, "fish");
  for (const [line, words] of CASES) {
    const lines = run("fish", "--no-config", "-c", `source ${script}; complete -C "culvert ${line.join(" ")}"`).split(
      "\n",
    );
    assert.deepEqual(
      lines
        .filter(Boolean)
        .map((each) => each.split("\t")[0])
        .sort(),
      words,
    );
  }
});

test("zsh is told the commands, and for each its options with their values", { skip: missingProgram("zsh") }, () => {
  using dir = new TempDir();
  const script = written(dir, "zsh");
  // Stubs for the completion system of zsh.
  const stubs = "compdef() { : }; _describe() { print -rl -- $commands }; _arguments() { print -rl -- $@ }";
  const told = (...line: string[]) =>
    run(
      "zsh",
      "-fc",
      `${stubs}; source $1; shift; words=(culvert $@) CURRENT=$#words; _culvert`,
      "zsh",
      script,
      ...line,
    );
  assert.match(told("con"), /^connect:Make one CONNECT/m);
  assert.match(told("server", "--log-"), /^--log-level=\[Lowest level that is logged\]:value:\(trace debug /m);
  assert.match(told("server", "--log-"), /^--server-cert=\[.*\]:file:_files$/m);
  assert.match(told("pki", "kub"), /^kubernetes:Keep the certificates/m);
  assert.match(told("konnectivity-socks5-proxy", "--login"), /^--login-file=\[File with user\\:password/m);
});

test("the manual page of each command is one that groff reads without a warning", {
  skip: missingProgram("groff"),
}, () => {
  for (const command of [[], ["server"], ["agent"], ["pki", "kubernetes"], ["connect"]]) {
    const page = run(RUNTIME, MAIN, "manual", ...command);
    const shown = execFileSync("groff", ["-man", "-Tascii", "-ww", "-P-cbou"], {
      input: page,
      encoding: "utf8",
      stdio: ["pipe", "pipe", "pipe"],
    });
    assert.match(shown, new RegExp(`^ {7}${["culvert", ...command].join("-")}  ?-  ?\\w`, "m"));
  }
  const server = run(RUNTIME, MAIN, "manual", "server");
  assert.match(server, /^\.B \\-\\-drain\\-timeout duration$/m);
});
