import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { ignored, refusedUnless } from "../common-options.ts";
import { defineOptions, type OptionsOf, option, section } from "../options.ts";
import { readOptions } from "../read-options.ts";

/** A table with a row of every kind, and the ways to read it. */
export const table = defineOptions({
  command: "sample",
  summary: "A sample.",
  envPrefix: "CULVERT_SAMPLE",
  example: ["culvert sample --uds-name /run/x.sock"],
  options: {
    ...section("Listen", {
      udsName: option.string("", "A socket.", { konnectivity: "--uds-name" }),
      udsMode: option.fileMode("0660", "Its mode."),
      agentPort: option.port(8091, "A port."),
      deleteFile: option.boolean(true, "Delete | keep."),
    }),
    ...section("Rest", {
      dialTimeoutMs: option.duration("5s", "A time.", { konnectivity: "--backend-dial-timeout", max: "1h" }),
      window: option.size("64KiB", "A size.", { min: "16KiB" }),
      count: option.integer(3, "A number.", { min: 1, max: 9 }),
      targets: option.list([], "A list."),
      identities: option.list([], "Another list.", { separator: ";" }),
      level: option.oneOf(["info", "debug"], "info", "A choice."),
      sampleId: option.identifier("", "A name.", { environment: "PROXY_SAMPLE_ID" }),
      cert: option.file("", "A file."),
      url: option.string("", "A URL."),
      host: option.address("", "A host."),
      tlsMinVersion: option.tlsVersion("A version."),
      cipherSuites: option.cipherSuites("Suites."),
    }),
  },
  foreign: {
    mode: refusedUnless(["", "http-connect"], "only HTTP CONNECT is spoken."),
    "xfr-channel-size": ignored("no channels"),
    logtostderr: ignored("klog", true),
    v: ignored("klog"),
  },
  resolve: ({ values, given, problem }) => {
    if (given("window") && values.window === 17 * 1024) problem("A window of 17KiB brings bad luck.");
  },
});

/** A folder that goes with the tests of the file that imports this. */
export const dir = mkdtempSync(join(tmpdir(), "culvert-options-"));
after(() => rmSync(dir, { recursive: true, force: true }));

export const read = (argv: string[], env: NodeJS.ProcessEnv = {}) => readOptions(table, { argv, env });

export async function good(argv: string[], env: NodeJS.ProcessEnv = {}): Promise<OptionsOf<typeof table>> {
  const { problems, values } = await read(argv, env);
  assert.deepEqual(problems, []);
  return values;
}

export function configFile(text: string): string {
  const path = join(dir, `config-${Math.random().toString(16).slice(2)}.yaml`);
  writeFileSync(path, text);
  return path;
}
