// Run by `helm test`: one CONNECT as a caller makes it. It passes when an agent has answered, also where the answer is
// that the agent may not dial the target.
import { readFileSync } from "node:fs";
import { connect } from "node:tls";

const { HOST, PORT, SERVER_NAME, TARGET } = process.env;
const ATTEMPTS = 20;
const PAUSE_MS = 3000;

function ask() {
  return new Promise((resolve) => {
    const read = (name) => readFileSync(`/etc/culvert/caller/${name}`);
    const tls = { cert: read("tls.crt"), key: read("tls.key"), ca: read("ca.crt") };
    const socket = connect({ host: HOST, port: Number(PORT), servername: SERVER_NAME, ...tls }, () => {
      socket.write(`CONNECT ${TARGET} HTTP/1.1\r\nHost: ${TARGET}\r\n\r\n`);
    });
    let answer = "";
    socket.setTimeout(15_000, () => socket.destroy(new Error("no answer within 15 s")));
    socket.on("data", (bytes) => {
      answer += bytes.toString("latin1");
      const end = answer.indexOf("\r\n\r\n");
      if (end === -1) return;
      socket.destroy();
      resolve(answer.slice(0, end));
    });
    socket.on("error", (error) => resolve(`no answer: ${error.message}`));
    socket.on("close", () => resolve("no answer: the server closed the connection"));
  });
}

for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
  const answer = await ask();
  const line = answer.split("\r\n")[0];
  console.log(`CONNECT ${TARGET} by ${HOST}:${PORT}: ${line}`);
  if (/^HTTP\/1\.1 200 /.test(line)) process.exit(0);
  // An agent that refuses the target by its own policy, or does not reach it, shows that the way to the agent is good.
  if (/^proxy-status: culvert;[^,"]*; refused-by=agent(;|$)/im.test(answer)) {
    console.log("An agent answered, so the way to it is good.");
    process.exit(0);
  }
  await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
}
console.log("No agent answered. `culvert explain` and docs/errors.md say what the status means.");
process.exit(1);
