/** The plaintext of one TLS record at most, bytes (RFC 8446 §5.1): what one read at the other end brings. */
const RECORD = 16 * 1024;

/** How many of the `most` bytes from byte `at` of a write on fill whole records; `most` where none ends among them. */
export function wholeRecords(at: number, most: number): number {
  const beyond = (at + most) % RECORD;
  return beyond < most ? most - beyond : most;
}
