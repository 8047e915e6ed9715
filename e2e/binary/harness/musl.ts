import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cachedFolder, cachedPath } from "../../kubernetes/go-build.ts";

const CACHED = "musl";
/** The first Debian with musl 1.2.4 or newer, which applies the packed relocations of today's libraries. */
const DEBIAN = "trixie";
/** Its wheel for musl brings the libstdc++ and the libgcc of Alpine Linux, which Debian has for glibc only. */
const WHEEL = "greenlet==3.5.6";

/** Fetches musl from Debian's packages, and GCC's libraries for it from PyPI, once on a machine. */
export async function installMusl(): Promise<string> {
  return await cachedFolder(CACHED, async (unfinished) => {
    const run = (program: string, ...args: readonly string[]) =>
      execFileSync(program, args, { cwd: unfinished, encoding: "utf8" });
    const [mirror = ""] = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").split("\n");
    mkdirSync(join(unfinished, "lists/partial"), { recursive: true });
    writeFileSync(join(unfinished, "sources.list"), `deb ${mirror} ${DEBIAN} main\n`);
    const settings = {
      "Dir::Etc::SourceList": join(unfinished, "sources.list"),
      "Dir::Etc::SourceParts": "-",
      "Dir::State::Lists": join(unfinished, "lists"),
      "Dir::Cache": join(unfinished, "apt"),
      "APT::Sandbox::User": "root",
    };
    const apt = Object.entries(settings).map(([name, value]) => `-o${name}=${value}`);
    run("apt-get", ...apt, "-qq", "update");
    run("apt-get", ...apt, "-qq", "download", "musl");
    run("sh", "-c", "dpkg-deb -x musl_*.deb debian && rm -rf lists");
    const wanted = ["--platform", "musllinux_1_2_x86_64", "--python-version", "312", "--only-binary=:all:"];
    run("python3", "-m", "pip", "download", "-q", "--no-deps", ...wanted, WHEEL);
    run("sh", "-c", "python3 -m zipfile -e *.whl wheel");
  });
}

/** The loader, which is the C library as well, and the two libraries. */
export function muslFiles(): string[] {
  const libraries = cachedPath(`${CACHED}/wheel/greenlet.libs`);
  return [
    cachedPath(`${CACHED}/debian/usr/lib/ld-musl-x86_64.so.1`),
    ...readdirSync(libraries).map((name) => join(libraries, name)),
  ];
}

/** Why there is no musl here; on CI that is a failure. */
export function muslMissing(): string | false {
  if (existsSync(cachedPath(CACHED))) return false;
  const reason = "musl is not installed: node --import tsx e2e/harness/install-tools.ts fetches it";
  if (process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  return reason;
}
