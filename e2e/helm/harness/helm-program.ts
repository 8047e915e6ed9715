import { findGoTool, goToolMissing, HELM } from "../../harness/go-tool.ts";

/** Path of the helm in the cache, or else of the one on the PATH. */
export const findHelm = (): string | undefined => findGoTool(HELM);

/** Why charts cannot be rendered here; on CI that is a failure. */
export const helmMissing = (): string | false => goToolMissing(HELM);
