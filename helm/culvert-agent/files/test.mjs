/**
 * Script of `helm test`: asks an agent's /readyz until it is ready, for a minute at most. Its environment:
 * TEST_TARGET is host:port of the health port; TEST_SERVER is the URL of the server's port for callers, or empty to ask
 * directly; TEST_FOLDER has the caller's tls.crt, tls.key and ca.crt.
 */
import { readFileSync } from "node:fs";
import { get } from "node:http";
import { request } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";

const { TEST_TARGET: target = "", TEST_SERVER: server = "", TEST_FOLDER: folder = "" } = process.env;
const TRY_MS = 10_000;
const deadline = Date.now() + 60_000;
const path = server === "" ? target : `${target} through ${server}`;

for (;;) {
  try {
    const body = await askReadiness(server === "" ? undefined : await connect());
    console.log(`${path} is ready:\n${body}`);
    process.exit(0);
  } catch (error) {
    if (Date.now() > deadline) {
      console.error(`${path} did not become ready within a minute: ${error.message}`);
      process.exit(1);
    }
    await sleep(1_000);
  }
}

/** A connection to the target that the server has opened by an agent. */
function connect() {
  const { promise, resolve, reject } = withResolvers();
  const file = (name) => readFileSync(`${folder}/${name}`);
  const options = { cert: file("tls.crt"), key: file("tls.key"), ca: file("ca.crt"), agent: false, timeout: TRY_MS };
  const asked = request(server, { ...options, method: "CONNECT", path: target });
  asked.on("connect", ({ statusCode, statusMessage }, socket) => {
    if (statusCode === 200) return resolve(socket);
    socket.destroy();
    reject(new Error(`the server answered CONNECT with ${statusCode} ${statusMessage}`));
  });
  asked.on("timeout", () => asked.destroy(new Error("the server does not answer CONNECT")));
  asked.on("error", reject);
  asked.end();
  return promise;
}

function askReadiness(socket) {
  const { promise, resolve, reject } = withResolvers();
  const over = socket === undefined ? {} : { createConnection: () => socket };
  const asked = get(`http://${target}/readyz?verbose`, { agent: false, timeout: TRY_MS, ...over }, (answer) => {
    let body = "";
    answer.setEncoding("utf8");
    answer.on("data", (text) => {
      body += text;
    });
    answer.on("end", () => {
      if (answer.statusCode === 200) resolve(body);
      else reject(new Error(`/readyz says ${answer.statusCode}: ${body.trim()}`));
    });
    answer.on("error", reject);
  });
  asked.on("timeout", () => asked.destroy(new Error("the health port does not answer")));
  asked.on("error", reject);
  return promise;
}

function withResolvers() {
  const deferred = {};
  deferred.promise = new Promise((resolve, reject) => Object.assign(deferred, { resolve, reject }));
  return deferred;
}
