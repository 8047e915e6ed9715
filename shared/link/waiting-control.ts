import type { ControlMessage } from "./control.ts";
import { frameHeader, TEXT } from "./frame-parser.ts";

const NOTHING: readonly Buffer[] = [];

/** Control messages of this tick, framed, until payload comes that they can go with. */
export class WaitingControl {
  readonly #masked: boolean;
  #frames: Buffer[] = [];
  #bytes = 0;

  constructor(masked: boolean) {
    this.#masked = masked;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(message: ControlMessage): void {
    const text = Buffer.from(JSON.stringify(message));
    const header = frameHeader(TEXT, text.length, this.#masked);
    this.#frames.push(header, text);
    this.#bytes += header.length + text.length;
  }

  take(): readonly Buffer[] {
    if (this.#bytes === 0) return NOTHING;
    const frames = this.#frames;
    this.#frames = [];
    this.#bytes = 0;
    return frames;
  }
}
