import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";

/** How `npm ci` in a RUN step reaches the registry of this machine, and the cache that it shares with it. */
export function packageRegistry() {
  const [registry = "", cache = ""] = ["registry", "cache"].map((key) => {
    return spawnSync("npm", ["config", "get", key], { encoding: "utf8" }).stdout.trim();
  });
  mkdirSync(cache, { recursive: true });
  const authorities = process.env["NODE_EXTRA_CA_CERTS"];
  return {
    env: {
      npm_config_registry: registry,
      npm_config_prefer_offline: "true",
      ...(authorities === undefined ? {} : { NODE_EXTRA_CA_CERTS: authorities }),
    },
    caches: { "/root/.npm": cache },
  };
}
