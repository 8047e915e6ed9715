import assert from "node:assert/strict";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { LeafOptions } from "../../shared/pki/certificates.ts";
import { fetchText, pki, start, until } from "../testing.ts";

type Times = Pick<LeafOptions, "notBefore" | "notAfter">;

const fromNow = (minutes: number): Date => new Date(Math.floor(Date.now() / 1_000) * 1_000 + minutes * 60_000);

/** Certificate and key of a flag, in a folder of their own. */
async function flagFiles() {
  const folder = await mkdtemp(join(tmpdir(), "culvert-validity-"));
  const [clusterCert, clusterKey] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  return {
    options: { clusterCert, clusterKey },
    renew: async (times: Times) => {
      const { cert, key } = await pki.ca.issue({ cn: "server", names: ["localhost"], usage: "server", ...times });
      for (const [path, content] of [
        [clusterCert, cert],
        [clusterKey, key],
      ] as const) {
        await writeFile(`${path}.new`, content);
        await rename(`${path}.new`, path);
      }
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  };
}

test("a server whose certificate is not yet valid is not ready, at the start and after a reload", async () => {
  await using files = await flagFiles();
  const notBefore = fromNow(60);
  await files.renew({ notBefore });
  await using server = await start(files.options);
  const shown = () => fetchText(server.addresses.health?.port, "/readyz?verbose");
  const { status, text } = await shown();
  assert.equal(status, 503);
  assert.ok(text.includes(`agents: not valid before ${notBefore.toISOString()}`), text);

  await files.renew({});
  await until(async () => (await shown()).status === 200);
  await files.renew({ notBefore: fromNow(120) });
  await until(async () => (await shown()).status === 503);
});
