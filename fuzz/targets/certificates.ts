import assert from "node:assert/strict";
import { elements, subjectOf } from "../../shared/tls/certificate-fields.ts";
import { RevocationList } from "../../shared/tls/revocation-list.ts";
import { assertPrintable, attempt, type Target } from "../target.ts";

const ALGORITHM = sequence(der(0x06, "2a8648ce3d040302"));
const NAME = sequence(der(0x31, sequence(der(0x06, "550403"), der(0x0c, Buffer.from("ca")))));
const DATE = der(0x17, Buffer.from("261124000000Z"));
const ENTRIES = sequence(
  sequence(der(0x02, "0aff"), DATE),
  sequence(der(0x02, "8001"), DATE, sequence(sequence(der(0x06, "551d15"), der(0x04, "0a0101")))),
);
const EXTENSIONS = der(0xa0, sequence(sequence(der(0x06, "551d1c"), der(0x01, "ff"), der(0x04, "3000"))));
const SIGNATURE = der(0x03, "0001");
const LONG_DATE = der(0x18, Buffer.from("20501124000000Z"));

/** DER of others: a list of revoked certificates, and the subject of a CA's certificate. */
export const certificates: Target = {
  name: "certificates",
  maxLength: 2_048,
  seeds: [
    sequence(sequence(der(0x02, "01"), ALGORITHM, NAME, DATE, LONG_DATE, ENTRIES, EXTENSIONS), ALGORITHM, SIGNATURE),
    sequence(sequence(ALGORITHM, NAME, DATE), ALGORITHM, SIGNATURE),
    sequence(
      sequence(der(0xa0, "020102"), der(0x02, "01"), ALGORITHM, NAME, sequence(DATE, DATE), NAME),
      ALGORITHM,
      SIGNATURE,
    ),
  ],
  words: [
    ALGORITHM,
    NAME,
    DATE,
    LONG_DATE,
    ENTRIES,
    EXTENSIONS,
    SIGNATURE,
    Buffer.from("30820000", "hex"),
    Buffer.from("30840000", "hex"),
  ],
  run(input) {
    const all = attempt(() => [...elements(input)], Error);
    if (all.error === undefined) {
      assert.ok(Buffer.concat(all.value.map(({ whole }) => whole)).equals(input), "the elements are all bytes");
    }
    const subject = attempt(() => subjectOf(input), Error);
    const list = attempt(() => new RevocationList(input), Error);
    for (const { error } of [all, subject, list]) if (error !== undefined) assertPrintable(error.message, 200);
    if (list.error !== undefined) return `${subject.error?.message} ${list.error.message.replace(/\(\w*\)/, "…")}`;
    assert.ok(!Number.isNaN(list.value.thisUpdate.getTime()), "a date");
    return `a list ${list.value.nextUpdate !== undefined}`;
  },
};

function sequence(...content: Buffer[]): Buffer {
  return der(0x30, Buffer.concat(content));
}

/** One element; `content` in hexadecimal, or as it is. */
function der(tag: number, content: Buffer | string): Buffer {
  const bytes = typeof content === "string" ? Buffer.from(content, "hex") : content;
  const length = bytes.length < 0x80 ? [bytes.length] : [0x82, bytes.length >> 8, bytes.length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), bytes]);
}
