import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { speakSocks } from "../../shared/dial/socks-proxy.ts";
import { splits, type Target } from "../target.ts";

const PROXY = { scheme: "socks5h", host: "proxy.example", port: 1_080, credentials: undefined } as const;
const TO = { host: "server.example", port: 443 };
const CREDENTIALS = { user: "anna", password: "s3cr3t-p4ss" };
const OPENED = Buffer.from("05000001000000000000", "hex");
const ADDRESS_BYTES = new Map([
  [1, 4],
  [4, 16],
]);
const NAME = 3;

/** The answers of a SOCKS 5 proxy. The first byte says whether there are credentials, the others are its bytes. */
export const socks: Target = {
  name: "socks",
  maxLength: 600,
  seeds: ["000500", "010502" + "0100", "010500"].flatMap((hex) =>
    [
      OPENED,
      Buffer.from("050500010000000000001234", "hex"),
      Buffer.from("050000030161ffff", "hex"),
      Buffer.from(`05000004${"00".repeat(18)}`, "hex"),
    ].map((answer) => Buffer.concat([Buffer.from(hex, "hex"), answer, Buffer.from("behind")])),
  ),
  words: [
    OPENED,
    Buffer.from("0500", "hex"),
    Buffer.from("0502", "hex"),
    Buffer.from("05ff", "hex"),
    Buffer.from("0100", "hex"),
  ],
  async run(input) {
    const hasCredentials = (input[0] ?? 0) % 2 === 1;
    const [, pieces] = splits(input.subarray(1));
    const { result, rest } = await converse(pieces, hasCredentials);
    if (result instanceof Error) {
      assert.ok(result instanceof RouteFault, `${result} is a fault of a route`);
      assert.ok(!result.message.includes(CREDENTIALS.password));
      assert.ok(result.message.length <= 400 && /^\P{Cc}*$/u.test(result.message));
      return `${result.fault} ${/reply (\d)/.exec(result.message)?.[1]}`;
    }
    const from = behindAnswers(input.subarray(1));
    assert.ok(from !== undefined, "the proxy has said yes");
    assert.ok(rest.equals(input.subarray(1 + from)), "what follows the answer is the server's");
    return "open";
  },
};

interface Conversation {
  readonly result: Error | undefined;
  /** The bytes that the connection delivers afterwards. */
  readonly rest: Buffer;
}

async function converse(pieces: readonly Buffer[], hasCredentials: boolean): Promise<Conversation> {
  const connection = new Duplex({ allowHalfOpen: false, read() {}, write: (_chunk, _encoding, done) => done() });
  connection.on("error", () => {});
  const spoken = speakSocks(connection, {
    proxy: PROXY,
    target: TO,
    credentials: hasCredentials ? CREDENTIALS : undefined,
  }).then(
    () => undefined,
    (error: Error) => error,
  );
  for (const piece of pieces) connection.push(piece);
  connection.push(null);
  const result = await spoken;
  const rest: Buffer[] = [];
  if (result === undefined) for await (const chunk of connection) rest.push(chunk);
  connection.destroy();
  return { result, rest: Buffer.concat(rest) };
}

/** Where the answers end (RFC 1928 §3, §6, RFC 1929 §2); `undefined` if no connection was opened. */
function behindAnswers(bytes: Buffer): number | undefined {
  const [version, method] = bytes;
  if (version !== 5 || (method !== 0 && method !== 2)) return undefined;
  const at = method === 2 ? 4 : 2;
  if (method === 2 && bytes[3] !== 0) return undefined;
  if (bytes[at] !== 5 || bytes[at + 1] !== 0) return undefined;
  const kind = bytes[at + 3] ?? 0;
  const length = kind === NAME ? 1 + (bytes[at + 4] ?? 0) : ADDRESS_BYTES.get(kind);
  const end = length === undefined ? undefined : at + 4 + length + 2;
  return end === undefined || end > bytes.length ? undefined : end;
}
