import assert from "node:assert/strict";
import { test } from "node:test";
import { EndedInHandshake } from "../../shared/listen/accept-rules.ts";
import { closedEarlyReason, handshakeFailure, MESSAGES } from "./open-port.ts";

const TABLE: ReadonlyArray<readonly [code: string, words: RegExp]> = [
  ["ERR_SSL_HTTP_REQUEST", /^the client speaks plain HTTP.* https:\/\/ /],
  ["ERR_SSL_HTTPS_PROXY_REQUEST", /^the client sends its CONNECT in plain HTTP/],
  ["ERR_SSL_WRONG_VERSION_NUMBER", /^the client does not speak TLS/],
  ["ERR_SSL_UNSUPPORTED_PROTOCOL", /no TLS version that is taken here \(--tls-min-version\)/],
  ["ERR_SSL_NO_SHARED_CIPHER", /no cipher in common \(--cipher-suites\)/],
  ["ERR_SSL_TLSV1_ALERT_UNKNOWN_CA", /^the client does not accept our certificate: it does not know the CA/],
  ["ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE", /^the client does not accept our certificate: /],
  ["ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE", /^the client does not accept our certificate: /], // OpenSSL 3.2
  ["ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED", /by its clock it has expired/],
  ["ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR", /^the client ended it with the alert "internal error"/],
  ["ERR_SSL_BAD_SIGNATURE", /^the client's certificate, or the proof .* is broken/],
  ["ERR_TLS_HANDSHAKE_TIMEOUT", /within --handshake-timeout/],
  ["ECONNRESET", /^the client reset the connection .* does not accept our certificate may/],
  ["ERR_SSL_SOMETHING_NEW", /^something new /],
];

test("a failed handshake is described by a sentence, with OpenSSL's reason in brackets and none of its own text", () => {
  for (const [code, words] of TABLE) {
    const message = "80AC2140E27F0000:error:0A00009C:SSL routines:ssl3_get_record:x:../deps/openssl/x.c:341:";
    const sentence = handshakeFailure(Object.assign(new Error(message), { code, reason: "something new" }));
    assert.match(sentence, words);
    assert.ok(sentence.endsWith(` [${code}]`), sentence);
    assert.doesNotMatch(sentence, /SSL routines/);
  }
});

test("a client that closes during the handshake may have refused our certificate", () => {
  assert.match(
    handshakeFailure(new EndedInHandshake("beginning")),
    /^the connection ended during the beginning: a client that does/,
  );
});

test("on a port without TLS no certificate is mentioned", () => {
  const cut = new EndedInHandshake("HTTP request");
  assert.equal(MESSAGES.plain.reasonOf(cut), "the connection ended during the HTTP request");
});

test("a message without a code stays as it is", () => {
  assert.equal(handshakeFailure(new Error('no cluster has the server name "x"')), 'no cluster has the server name "x"');
});

test("a client that closes after the handshake is described by its alert, if it sent one", () => {
  const alert = Object.assign(new Error("x"), { code: "ERR_SSL_TLSV1_ALERT_UNKNOWN_CA" });
  assert.match(closedEarlyReason({ errored: alert }), /does not know the CA .*\[ERR_SSL_TLSV1_ALERT_UNKNOWN_CA\]$/);
  const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
  for (const errored of [null, reset])
    assert.match(closedEarlyReason({ errored }), /^it sent no request: a client that does not accept/);
});
