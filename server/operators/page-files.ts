import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname, join } from "node:path";
import { type FastifyError, fastify } from "fastify";
import { foldersAroundProgram } from "../../shared/basics/program.ts";
import { FASTIFY_OPTIONS } from "../../shared/http/fastify-options.ts";

/** Nothing but our own files runs, and no other page may show ours in a frame or read from it. */
const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  connection: "close",
};

const TEXT = "text/plain; charset=utf-8";
const TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** Answers with the built files of the page (`ui/`). The port has verified the Host of the request. */
export async function pageFiles(): Promise<(request: IncomingMessage, response: ServerResponse) => void> {
  const app = fastify(FASTIFY_OPTIONS);
  app.addHook("onRequest", async (_request, reply) => void reply.headers(HEADERS));
  const root = builtFolder();
  // A few files, each with a path of its own: no path of a request is looked for on the disk.
  for (const name of root === undefined ? [] : readdirSync(root)) {
    const content = readFileSync(join(root ?? "", name));
    const path = `/ui/${name === "index.html" ? "" : name}`;
    app.get(path, (_request, reply) => reply.type(TYPES[extname(name)] ?? TEXT).send(content));
  }
  app.setErrorHandler<FastifyError>((error, _request, reply) => {
    const status = error.statusCode ?? 500;
    return reply
      .code(status)
      .type(TEXT)
      .send(status < 500 ? "there is no such file\n" : "the file cannot be read\n");
  });
  app.setNotFoundHandler((_request, reply) => {
    const why = root === undefined ? "this build has no page: npm run build makes it" : "there is no such file";
    return reply.code(404).type(TEXT).send(`${why}\n`);
  });
  await app.ready();
  return (request, response) => app.routing(request, response);
}

/** `ui/` in `dist/`: beside the program, or below its sources. */
function builtFolder(): string | undefined {
  const folders = foldersAroundProgram().flatMap((folder) => [join(folder, "ui"), join(folder, "dist/ui")]);
  return folders.find((folder) => existsSync(join(folder, "index.html")) && existsSync(join(folder, "main.js")));
}
