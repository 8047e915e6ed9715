import { type ClientRequest, get } from "node:http";
import { setPriority } from "node:os";
import { serve } from "./child.ts";

// Browsers that have the status page open, as far as the server notices: each reads what is new. They run on other
// machines, so here they work only when nothing that is measured does.
setPriority(19);

const open: ClientRequest[] = [];

/** Resolves when each of them has read something. */
async function look({ port, count, cluster }: { port: number; count: number; cluster: string }): Promise<object> {
  const readers = Array.from({ length: count }, (_, index) => {
    const path = `/ui/events${index % 2 === 0 ? "" : `?cluster=${cluster}`}`;
    return new Promise<void>((resolve, reject) => {
      const request = get({ host: "127.0.0.1", port, path, agent: false }, (response) => {
        response.on("data", () => resolve()).on("error", () => {});
      });
      open.push(request.on("error", reject));
    });
  });
  await Promise.all(readers);
  return {};
}

function lookAway(_: object): object {
  for (const request of open.splice(0)) request.on("error", () => {}).destroy();
  return {};
}

const methods = { look, lookAway };

export type PageMethods = typeof methods;
serve(methods);
