const LF = 10;
const CR = 13;

/**
 * Finds the empty line at the end of an HTTP/1 header section (RFC 9112 §2.1) in pieces of any size. A bare LF ends a
 * line, as it does for lenient parsers, so the end is never behind the one that a parser finds. Each byte is read once.
 */
export class HeaderEnd {
  #hasEnded = false;
  /** The last byte was a line break, or a CR behind one. */
  #afterLineBreak = false;
  /** Only line breaks were read. Empty lines before a request are ignored (RFC 9112 §2.2). */
  #isEmpty = true;

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Returns the number of bytes of this piece that belong to the header. */
  push(piece: Buffer): number {
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at];
      if (byte === LF) {
        if (this.#afterLineBreak && !this.#isEmpty) {
          this.#hasEnded = true;
          return at + 1;
        }
        this.#afterLineBreak = true;
      } else if (byte !== CR) {
        this.#afterLineBreak = false;
        this.#isEmpty = false;
        const end = piece.indexOf(LF, at);
        if (end === -1) return piece.length;
        at = end - 1;
      }
    }
    return piece.length;
  }
}
