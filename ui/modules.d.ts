declare module "*.css";

/** Made by scripts/page.mjs: what docs/errors.md says to do, by the code of an outcome. */
declare module "culvert:next-steps" {
  export const NEXT_STEPS: Readonly<Record<string, string>>;
}
