import assert from "node:assert/strict";
import { test } from "node:test";
import { table } from "../shared/config/testing/sample-table.ts";
import { optionsMarkdown } from "./options-page.ts";

test("the docs page has every option with its limits, its variable and its Konnectivity flag, and every other flag", () => {
  const page = optionsMarkdown(table);
  assert.match(
    page,
    /\| `--dial-timeout` \| duration, at most 1h \| `5s` \| `CULVERT_SAMPLE_DIAL_TIMEOUT` \| `--backend-dial-timeout` \| A time\. \|/,
  );
  assert.match(page, /\| `--window` \| size, at least 16KiB \|/);
  assert.match(page, /\| `--count` \| number, 1 to 9 \|/);
  assert.match(page, /`CULVERT_SAMPLE_SAMPLE_ID` `PROXY_SAMPLE_ID`/);
  assert.match(page, /Delete \\\| keep/);
  assert.match(page, /\| `--mode` \| only HTTP CONNECT is spoken\. \|/);
  assert.match(page, /\| `--xfr-channel-size` \| no channels \|/);
});
