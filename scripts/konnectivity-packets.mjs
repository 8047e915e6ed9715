/**
 * Writes `shared/konnectivity/client_pb.ts` from `client.proto` beside it, which is Konnectivity's own:
 * `node scripts/konnectivity-packets.mjs`. npm brings the compiler and its plugin; nothing of them is installed, for
 * `client.proto` changes once in years (docs/decisions/0052-konnectivity-packets.md).
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../shared/konnectivity", import.meta.url));
/** protoc-gen-es has the version of `@bufbuild/protobuf` in package.json. */
const PACKAGES = ["@bufbuild/buf@1.75.0", "@bufbuild/protoc-gen-es@2.17.0"];
const TEMPLATE = {
  version: "v2",
  plugins: [
    {
      local: "protoc-gen-es",
      out: ".",
      // No `enum`: Node's own TypeScript support knows types alone.
      opt: ["target=ts", "import_extension=ts", "erasable_syntax=true"],
    },
  ],
};

const packages = PACKAGES.flatMap((name) => ["-p", name]);
execFileSync("npx", ["-y", ...packages, "buf", "generate", "--template", JSON.stringify(TEMPLATE), "."], {
  cwd: FOLDER,
  stdio: "inherit",
});
