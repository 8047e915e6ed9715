const LF = 10;
const CR = 13;

/**
 * Finds the empty line at the end of an HTTP/1 header section (RFC 9112 §2.1), in bytes that come in any pieces. A bare
 * LF ends a line for it, too, as it does for lenient parsers: what it finds is never behind the end that a parser
 * finds. Each byte is looked at once.
 */
export class HeaderEnd {
  #hasEnded = false;
  /** The last line break, and a CR behind it. */
  #afterLineBreak = false;
  /** Nothing but line breaks has come: those in front of a request are ignored (§2.2). */
  #isEmpty = true;

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** How many bytes of this piece belong to the header; those behind them belong to nobody yet. */
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
        // On to the end of this line.
        const end = piece.indexOf(LF, at);
        if (end === -1) return piece.length;
        at = end - 1;
      }
    }
    return piece.length;
  }
}
