import type { IncomingMessage } from "node:http";
import type { Ui } from "../../shared/admin/pages.ts";
import { checkConnect } from "./connect-check.ts";
import type { CheckLine } from "./facts.ts";
import { Feed } from "./feed.ts";
import { PageFacts, type PageSource } from "./page-facts.ts";
import { pageFiles } from "./page-files.ts";

/** Creates the handlers under `/ui/`. This file is loaded with the first request there. */
export async function createPage(source: PageSource): Promise<Ui> {
  const facts = new PageFacts(source);
  const feed = new Feed(facts);
  const files = await pageFiles();
  return {
    file: (request, response) => files(request, response),
    events: (request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream", ...LIVE });
      feed.add(response, clusterIn(request));
    },
    summary: facts.summary,
    check: (asked, response) => {
      response.writeHead(200, { "content-type": "application/x-ndjson", ...LIVE });
      response.on("error", () => {});
      const write = (line: CheckLine) => response.write(`${JSON.stringify(line)}\n`);
      void checkConnect(asked, source.context, (steps) => write({ steps })).then((result) => {
        write(result);
        response.end();
      });
    },
  };
}

const LIVE = { "cache-control": "no-store", connection: "close", "x-content-type-options": "nosniff" };

function clusterIn({ url = "" }: IncomingMessage): string {
  return new URLSearchParams(url.split("?", 2)[1]).get("cluster") ?? "";
}
