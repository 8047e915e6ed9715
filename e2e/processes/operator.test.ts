import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { before, test } from "node:test";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough } from "../harness/caller.ts";
import { flags } from "../harness/pki-files.ts";
import { NO_CERTIFICATE, nodeOnly, requireBuilt, startCulvert } from "../harness/processes.ts";
import { waitFor } from "../harness/wait.ts";

/**
 * Certificates that are wrong in one thing, at real processes: what their operator reads, at whichever end, names the
 * fault. Other faults of certificates, and the agreement of doctor and agent, are in e2e/scenarios:
 * certificate-validity, doctor-certificates, doctor-faults, policy.
 */

before(requireBuilt);

const DAY = 86_400_000;
const EARLY = { notBefore: new Date(Date.now() + DAY / 2), notAfter: new Date(Date.now() + 3 * DAY) };
const OVER = { notBefore: new Date(Date.now() - 3 * DAY), notAfter: new Date(Date.now() - DAY) };
const SERVER = { cn: "server", names: ["127.0.0.1", "localhost"], usage: "server" } as const;
const CLIENT = { cn: "us", usage: "client" } as const;

const [ca, another] = await Promise.all([Authority.create("Our CA"), Authority.create("Another CA")]);

const NAMES = nodeOnly(NO_CERTIFICATE);
test("a server's certificate that agents do not accept is named by server, agent and doctor", NAMES, async () => {
  using site = await createSite();
  const own = put(site, "agent", await ca.issue(CLIENT));
  await compare(site, put(site, "cluster", await another.issue(SERVER)), own, {
    server: /a client that does not accept our certificate may leave like this/,
    agent: /the server's certificate is signed by \\?"Another CA\\?", which is not in --ca-cert/,
    doctor: /^The server's certificate is signed by "Another CA", which is not in --ca-cert\.$/m,
  });
});

test("an agent's certificate that the server refuses is named by server, agent and doctor", async () => {
  using site = await createSite();
  const own = put(site, "agent", await ca.issue({ ...CLIENT, cn: "somebody" }));
  await compare(site, put(site, "cluster", await ca.issue(SERVER)), own, {
    server: /the client certificate CN=somebody is not among --agent-identities/,
    agent: /\(403\): the client certificate CN=somebody is not among --agent-identities/,
    doctor: /does not let this agent in: the client certificate CN=somebody is not among --agent-identities\.$/m,
  });
});

/** A fault of a client's certificate, and the sentence of its refusal. */
const REFUSED = [
  [another.issue(CLIENT), /the client certificate is not signed by a CA that is accepted here/],
  [ca.issue({ ...CLIENT, cn: "somebody" }), /the client certificate CN=somebody is not among --caller-identities/],
  [ca.issue({ ...CLIENT, ...EARLY }), /the client certificate is not valid before 20.*: check both clocks/],
  [ca.issue({ ...CLIENT, ...OVER }), /the client certificate expired on 20/],
  [ca.issue({ ...CLIENT, usage: "server" }), /its extended key usage lacks clientAuth/],
] as const;

test("a caller's certificate that is wrong is named in the status line that kubectl prints, and in the server's log", async () => {
  using site = await createSite();
  await using server = await startServer(site, put(site, "server", await ca.issue(SERVER)));
  for (const [certificate, sentence] of REFUSED) {
    const tls = { ca: ca.cert, ...(await certificate) };
    await using connection = await connectThrough({ host: "127.0.0.1", port: site.callerPort, tls }, "10.0.0.1:10250");
    assert.equal(connection.status, 407);
    assert.match(connection.reason, sentence);
    await server.waitForLog(sentence);
  }
});

/** A sentence of each end's log, and the doctor's verdict. */
interface Says {
  readonly server: RegExp;
  readonly agent: RegExp;
  readonly doctor: RegExp;
}

/** Compares the sentences of server, agent and doctor, each at its own end. */
async function compare(site: Site, cluster: Files, own: Files, says: Says): Promise<void> {
  await using server = await startServer(site, cluster);
  const credentials = { caCert: site.dir.file("ca.crt"), agentCert: own.cert, agentKey: own.key };
  await using running = await site.startAgent(credentials, { wait: false });
  await running.waitForLog(says.agent);
  await server.waitForLog(says.server);
  const where = { server: `wss://127.0.0.1:${site.agentPort}` };
  await using examiner = startCulvert(["doctor", ...flags({ ...where, ...credentials })]);
  assert.equal(await examiner.exited, "exit code 1");
  await waitFor(() => says.doctor.test(examiner.log.join("\n")), {
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
