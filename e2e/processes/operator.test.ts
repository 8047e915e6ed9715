import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { before, test } from "node:test";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { flags } from "../harness/pki-files.ts";
import { requireBuilt, startCulvert } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";

/**
 * Certificates that are wrong in one thing, at real processes: what their operator reads, at whichever end, names the
 * fault. That doctor and agent name the same: e2e/scenarios/doctor-certificates.test.ts.
 */

before(requireBuilt);

const DAY = 86_400_000;
const EARLY = { notBefore: new Date(Date.now() + DAY / 2), notAfter: new Date(Date.now() + 3 * DAY) };
const OVER = { notBefore: new Date(Date.now() - 3 * DAY), notAfter: new Date(Date.now() - DAY) };
const SERVER = { cn: "server", names: ["127.0.0.1", "localhost"], usage: "server" } as const;
const CLIENT = { cn: "us", usage: "client" } as const;

const [ca, another] = await Promise.all([Authority.create("Our CA"), Authority.create("Another CA")]);

interface Row {
  readonly certificate: Promise<CertificateAndKey>;
  /** A sentence of each end's log, and the doctor's verdict. */
  readonly server?: RegExp;
  readonly agent: RegExp;
  readonly doctor: RegExp;
}

const SERVER_ROWS: Readonly<Record<string, Row>> = {
  "of another CA": {
    certificate: another.issue(SERVER),
    server: /a client that does not accept our certificate may leave like this/,
    agent: /the server's certificate is signed by \\?"Another CA\\?", which is not in --ca-cert/,
    doctor: /^The server's certificate is signed by "Another CA", which is not in --ca-cert\.$/m,
  },
  "for another name": {
    certificate: ca.issue({ ...SERVER, names: ["other.example"] }),
    server: /a client that does not accept our certificate may leave like this/,
    agent: /the server's certificate is for other\.example, not for 127\.0\.0\.1: name the server so in --server/,
    doctor: /^The server's certificate is for other\.example, not for 127\.0\.0\.1\.$/m,
  },
  "that is not valid yet": {
    certificate: ca.issue({ ...SERVER, ...EARLY }),
    server: /the certificate of --cluster-cert is not yet valid: agents refuse this server/,
    agent: /the server's certificate is not valid before 20/,
    doctor: /^The certificate of 127\.0\.0\.1:\d+ is not valid before 20/m,
  },
  "that has expired": {
    certificate: ca.issue({ ...SERVER, ...OVER }),
    server: /the certificate of --cluster-cert has expired: agents refuse this server/,
    agent: /the server's certificate expired on 20/,
    doctor: /^The certificate of 127\.0\.0\.1:\d+ expired on 20/m,
  },
  "without serverAuth": {
    certificate: ca.issue({ ...SERVER, usage: "client" }),
    server: /the certificate of --cluster-cert has no serverAuth in its extended key usage: agents refuse this server/,
    agent: /the server's certificate is a client's: its extended key usage has no serverAuth/,
    doctor: /^The certificate of 127\.0\.0\.1:\d+ is a client's: its extended key usage has no serverAuth\.$/m,
  },
};

const AGENT_ROWS: Readonly<Record<string, Row>> = {
  "of another CA": {
    certificate: another.issue(CLIENT),
    agent: /\(401\): the client certificate is not signed by a CA that is accepted here/,
    doctor: /does not let this agent in: the client certificate is not signed by a CA that is accepted here\.$/m,
  },
  "of another name": {
    certificate: ca.issue({ ...CLIENT, cn: "somebody" }),
    agent: /\(403\): the client certificate CN=somebody is not among --agent-identities/,
    doctor: /does not let this agent in: the client certificate CN=somebody is not among --agent-identities\.$/m,
  },
  "that is not valid yet": {
    certificate: ca.issue({ ...CLIENT, ...EARLY }),
    agent: /the certificate of --agent-cert is not yet valid: servers refuse this agent/,
    doctor:
      /^The agent's certificate \S+ is not valid before 20.*, and this machine's clock agrees with the server's\.$/m,
  },
  "that has expired": {
    certificate: ca.issue({ ...CLIENT, ...OVER }),
    agent: /the certificate of --agent-cert has expired: servers refuse this agent/,
    doctor: /^The agent's certificate \S+ expired on 20/m,
  },
  "without clientAuth": {
    certificate: ca.issue({ ...CLIENT, usage: "server" }),
    agent: /\(401\): the client certificate may not be used by a client \(its extended key usage lacks clientAuth\)/,
    doctor: /the client certificate may not be used by a client \(its extended key usage lacks clientAuth\)\.$/m,
  },
};

/** By what a server refuses each of these certificates, to an agent or to a caller. */
const REFUSALS: Readonly<Record<string, RegExp>> = {
  "of another CA": /the client certificate is not signed by a CA that is accepted here/,
  "of another name": /the client certificate CN=somebody is not among --(agent|caller)-identities/,
  "that is not valid yet": /the client certificate is not valid before 20.*: check both clocks/,
  "that has expired": /the client certificate expired on 20/,
  "without clientAuth": /its extended key usage lacks clientAuth/,
};

for (const [what, row] of Object.entries(SERVER_ROWS)) {
  test(`a server's certificate ${what} is named by server, agent and doctor`, async () => {
    using site = await createSite();
    const cluster = put(site, "cluster", await row.certificate);
    await compare(site, cluster, put(site, "agent", await ca.issue(CLIENT)), row, row.server ?? assert.fail());
  });
}

for (const [what, row] of Object.entries(AGENT_ROWS)) {
  test(`an agent's certificate ${what} is named by server, agent and doctor`, async () => {
    using site = await createSite();
    const cluster = put(site, "cluster", await ca.issue(SERVER));
    await compare(site, cluster, put(site, "agent", await row.certificate), row, REFUSALS[what] ?? assert.fail());
  });
}

test("a caller's certificate that is wrong is named in the status line that kubectl prints, and in the server's log", async () => {
  using site = await createSite();
  await using server = await startServer(site, put(site, "server", await ca.issue(SERVER)));
  for (const [what, { certificate }] of Object.entries(AGENT_ROWS)) {
    const sentence = REFUSALS[what] ?? assert.fail();
    const tls = { ca: ca.cert, ...(await certificate) };
    await using connection = await connectThrough({ host: "127.0.0.1", port: site.callerPort, tls }, "10.0.0.1:10250");
    assert.equal(connection.status, 407);
    assert.match(connection.reason, sentence);
    await server.waitForLog(sentence);
  }
});

/** What server, agent and doctor say, each at its own end. */
async function compare(site: Site, cluster: Files, own: Files, { agent, doctor }: Row, serverSays: RegExp) {
  await using server = await startServer(site, cluster);
  const credentials = { caCert: site.dir.file("ca.crt"), agentCert: own.cert, agentKey: own.key };
  await using running = await site.startAgent(credentials, { wait: false });
  await running.waitForLog(agent);
  await server.waitForLog(serverSays);
  const where = { server: `wss://127.0.0.1:${site.agentPort}`, seconds: 0 };
  await using examiner = startCulvert(["doctor", ...flags({ ...where, ...credentials })]);
  assert.equal((await examiner.exited).code, 1);
  await waitFor(() => doctor.test(examiner.log.join("\n")), {
    what: `the doctor's verdict:\n${examiner.log.join("\n")}`,
  });
}

/** A server that also listens where its certificate keeps it from being ready. */
async function startServer(site: Site, own: Files) {
  const caFile = site.dir.file("ca.crt");
  writeFileSync(caFile, ca.cert);
  const server = startCulvert([
    "server",
    ...flags({
      ...{ serverPort: site.callerPort, serverCert: own.cert, serverKey: own.key, serverCaCert: caFile },
      ...{ agentPort: site.agentPort, clusterCert: own.cert, clusterKey: own.key, clusterCaCert: caFile },
      ...{ agentIdentities: "CN=us", callerIdentities: "CN=us", healthPort: 0, adminPort: 0 },
    }),
  ]);
  await server.waitForLog("server started");
  return server;
}

interface Files {
  readonly cert: string;
  readonly key: string;
}

function put(site: Site, name: string, { cert, key }: CertificateAndKey): Files {
  const files = { cert: site.dir.file(`${name}-here.crt`), key: site.dir.file(`${name}-here.key`) };
  writeFileSync(files.cert, cert);
  writeFileSync(files.key, key);
  return files;
}
