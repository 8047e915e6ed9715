import { readFileSync } from "node:fs";
import { CHARTS, IMAGE } from "./addresses.ts";

// `node --import tsx scripts/release/outputs.ts` prints version and addresses as the outputs of a step of a workflow.

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string;
};
console.log(`version=${version}\nimage=${IMAGE}\ncharts=${CHARTS}`);
