import type { Duplex } from "node:stream";

/**
 * Turns the strings that are written to an HTTP/2 stream into buffers. Node frees the strings of a gathered write
 * (`cork`) before they are sent, and sends what then is in that memory. `node:http` gathers its header with the body.
 */
export function writeStringsAsBuffers(stream: Duplex): void {
  const write = stream.write.bind(stream) as (chunk: unknown, ...others: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...others: unknown[]): boolean => {
    if (typeof chunk !== "string") return write(chunk, ...others);
    const [encoding] = others;
    const hasEncoding = typeof encoding === "string";
    const bytes = Buffer.from(chunk, hasEncoding ? (encoding as BufferEncoding) : "utf8");
    return write(bytes, ...(hasEncoding ? others.slice(1) : others));
  };
}
