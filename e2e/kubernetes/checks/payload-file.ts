import { closeSync, createReadStream, openSync, writeSync } from "node:fs";
import { Payload, PayloadCheck } from "../../harness/payload.ts";

/** A new file of the payload that the stand-in's web server sends, too. */
export function payloadFile(path: string, length: number): string {
  const file = openSync(path, "wx");
  const payload = new Payload();
  for (let at = 0; at < length; ) at += writeSync(file, payload.at(at, length - at));
  closeSync(file);
  return path;
}

/** Rejects unless the file is that payload, byte for byte. */
export async function checkedFile(path: string, length: number): Promise<void> {
  const check = new PayloadCheck();
  for await (const chunk of createReadStream(path, { highWaterMark: 1_000_000 })) check.take(chunk);
  check.expect(length, path);
}
