import { buildInfo } from "../shared/runtime/build-info.ts";

/** `culvert version`: what a report of a fault should say of the program and of what it runs on. */
export function runVersion(json: boolean, print: (text: string) => void = (text) => process.stdout.write(text)): void {
  const { version, revision, node } = buildInfo();
  const { openssl } = process.versions;
  print(
    json
      ? `${JSON.stringify({ version, revision, node, openssl })}\n`
      : `culvert ${version}\nrevision ${revision}\nNode.js ${node}\nOpenSSL ${openssl}\n`,
  );
}
