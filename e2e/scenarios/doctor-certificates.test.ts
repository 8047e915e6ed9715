import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { after, before, test } from "node:test";
import { ScriptedProxy } from "../../shared/dial/testing/scripted-proxy.ts";
import { Authority, type LeafOptions } from "../../shared/pki/certificates.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { asAgent, assertBlamed, type Blame, type DoctorChange, type Examined, site } from "../harness/doctor.ts";
import { Middlebox } from "../harness/middlebox.ts";
import { startWorld, type World } from "../harness/world.ts";

const DAY = 86_400_000;

/** One server for all, whose CA is the "culvert cluster CA" of `culvert pki`. */
let here: World<never>;
before(async () => {
  here = await startWorld({ agents: 0 });
});
after(() => here[Symbol.asyncDispose]());

type Blamed = Omit<Blame, "step"> & { readonly step?: Blame["step"]; readonly world?: World<never> };

/** At the step of TLS, on the way to `here`, unless it says otherwise. */
function blames(change: DoctorChange, { step = "tls", world = here, ...blame }: Blamed): Promise<Examined> {
  return assertBlamed(world, change, { step, ...blame });
}

/** A file of a CA with this name and a key of its own. */
async function caFile(name: string): Promise<string> {
  const file = here.dir.file(`${name.replaceAll(" ", "-")}.crt`);
  writeFileSync(file, (await Authority.create(name)).cert);
  return file;
}

const PRIVATE =
  /^If "culvert cluster CA" is the server's CA.*, give its present certificate as --ca-cert: .* If it is not, /;
const ON_THE_PATH = /something on the path opens TLS \(see --outer-ca\)/;

test("no --ca-cert, and a server with a private CA", async () => {
  const { verdict, steps } = await blames(
    { caCert: "" },
    {
      ...{ culprit: "unknown_ca", next: PRIVATE },
      says: /^The server's certificate is signed by "culvert cluster CA", which is not in --ca-cert\.$/,
      agent: /^the server's certificate is signed by "culvert cluster CA", and no --ca-cert is given: give that CA's/,
    },
  );
  assert.match(verdict.next, ON_THE_PATH);
  assert.equal(steps.find(({ step }) => step === "tls")?.finding?.relation, "none_given");
});

test("--ca-cert of another CA", async () => {
  const { verdict } = await blames(
    { caCert: await caFile("Another CA") },
    {
      ...{ culprit: "unknown_ca", next: PRIVATE },
      says: /^The server's certificate is signed by "culvert cluster CA", which is not in --ca-cert\.$/,
      agent:
        /^the server's certificate is signed by "culvert cluster CA", which is not in --ca-cert: add it there, or /,
    },
  );
  assert.match(verdict.next, ON_THE_PATH);
});

test("--ca-cert of another CA of the same name, whatever --inner-tls and --outer-ca are", async () => {
  const caCert = await caFile("culvert cluster CA");
  const outerCa = await caFile("Corp Inspection CA");
  for (const change of [{}, { innerTls: "never" }, { outerCa }] as const) {
    await blames(
      { caCert, ...change },
      {
        ...{
          culprit: "unknown_ca",
          next: /--ca-cert: each run of culvert pki makes another CA of the same name/,
        },
        says: /is signed by "culvert cluster CA", which is not in --ca-cert\.$/,
        agent: /^the server's certificate is signed by another CA than the one in --ca-cert: same name/,
      },
    );
  }
});

test("behind a middlebox that is known, --ca-cert of another CA of the same name is reported inside of inner TLS", async (t) => {
  await using world = await startWorld({ agents: 0, server: { innerTls: "auto" } });
  const box = await Middlebox.start(world.server.addresses.agents?.port ?? 0);
  t.after(() => box[Symbol.asyncDispose]());
  const outerCa = here.dir.file("outer-ca.crt");
  writeFileSync(outerCa, box.authority.cert);
  const caCert = await caFile("culvert cluster CA");
  await blames(
    { server: [`wss://127.0.0.1:${box.port}`], outerCa, caCert },
    {
      ...{ world, step: "inner tls", culprit: "inner_untrusted", next: /--ca-cert/ },
      says: /^TLS is opened on the way by "Corp Inspection CA", .* inside inner TLS is signed by "culvert cluster CA"/,
      agent: /^inner TLS: the server's certificate is signed by another CA than the one in --ca-cert: same name/,
    },
  );
});

test("anybody's CA is an interception where a proxy is on the way, and not in --ca-cert where none is", async () => {
  const acme = await Authority.create("ACME Platform CA");
  const leaf = await acme.issue({ cn: "server", names: ["127.0.0.1"], usage: "server" });
  await using box = await site(leaf, (_request, response) => response.end("hello"));
  await blames(
    { server: box.server },
    {
      ...{ culprit: "unknown_ca", next: ON_THE_PATH },
      says: /^The server's certificate is signed by "ACME Platform CA", which is not in --ca-cert\.$/,
      agent: /^the server's certificate is signed by "ACME Platform CA", which is not in --ca-cert: /,
    },
  );
  const port = Number(new URL(box.server[0] ?? "").port);
  await using proxy = await ScriptedProxy.start({ onRequest: (_, socket) => passOn(socket, port) });
  await blames(
    { server: box.server, proxy: [`http://127.0.0.1:${proxy.url.port}`] },
    {
      ...{
        culprit: "intercepted",
        next: /^Ask the network team .* If "ACME Platform CA" is the server's own CA, give it/,
      },
      says: /^TLS is intercepted by "ACME Platform CA"/,
      agent: /^TLS is intercepted by "ACME Platform CA", none of our CAs: .*--outer-ca .*: --ca-cert/,
    },
  );
});

function passOn(socket: Socket, port: number): void {
  socket.removeAllListeners("data");
  socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
  const onward = connect(port, "127.0.0.1").on("error", () => {});
  socket.pipe(onward).pipe(socket);
}

/** A server of the world's CA that shows such a certificate, and says that it is this time. */
async function shows(leaf: Partial<LeafOptions>, blame: Blamed, date = new Date()): Promise<Examined> {
  const certificate = await here.pki.clusterAuthority.issue({
    ...{ cn: "server", names: ["127.0.0.1"], usage: "server" },
    ...leaf,
  });
  await using box = await site(certificate, (_request, response) =>
    response.writeHead(401, { date: date.toUTCString() }).end("no\n"),
  );
  return await blames({ server: box.server }, blame);
}

test("a certificate for other names: they are told, and the options to correct", async () => {
  const names = ["a.example", "b.example", "c.example", "d.example"];
  const { steps } = await shows(
    { names },
    {
      culprit: "wrong_name",
      says: /^The server's certificate is for a\.example, b\.example, c\.example and 1 more, not for 127\.0\.0\.1\.$/,
      next: /^Name the server in --server as .* \(--server-address .*\), or issue the server's --cluster-cert for 127\.0\.0\.1 too\./,
      agent:
        /^the server's certificate is for a\.example, .* and 1 more, not for 127\.0\.0\.1: name the server so in --server/,
    },
  );
  assert.equal(steps.find(({ step }) => step === "tls")?.finding?.names, "a.example, b.example, c.example and 1 more");
});

const EARLY = { notBefore: new Date(Date.now() + DAY / 2), notAfter: new Date(Date.now() + 3 * DAY) };
const early = /^the server's certificate is not valid before 20.*, and this machine's clock says 20/;

test("a certificate that is not valid yet: the clock is to blame where it is behind the server's, and not where it is right", async () => {
  await shows(EARLY, {
    ...{ culprit: "server_not_yet_valid", agent: early },
    says: /^The certificate of \S+ is not valid before 20.*\d\.$/,
    next: /If it is right, issue the server's --cluster-cert again with an earlier beginning, or wait until then\.$/,
  });
  await shows(
    EARLY,
    {
      ...{ culprit: "clock", agent: early, next: /^Set this machine's clock/ },
      says: /^The clock of this machine is .* behind the server's/,
    },
    new Date(Date.now() + DAY),
  );
});

test("an agent's certificate that is not valid yet does not blame a clock that is right", async () => {
  const mine = await here.pki.clusterAuthority.issue({ cn: "culvert-agent", usage: "client", ...EARLY });
  await blames(asAgent(here, mine), {
    ...{ step: "configuration", culprit: "agent_not_yet_valid", next: /issue --agent-cert again/ },
    says: /^The agent's certificate .* is not valid before 20.*\d\.$/,
    agent: /the client certificate is not valid before/,
  });
});

test("a client's certificate that a server shows", async () => {
  await shows(
    { usage: "client" },
    {
      culprit: "wrong_usage",
      says: /^The certificate of 127\.0\.0\.1:\d+ may not be used by a server: most likely it is a client's\.$/,
      next: /^Issue the server's --cluster-cert again, with serverAuth/,
      agent: /^the server's certificate is a client's: its extended key usage has no serverAuth; issue the server's/,
    },
  );
});

test("a certificate that has signed itself", async () => {
  await using box = await site(await certificateOf({ cn: "127.0.0.1", isCa: false }), (_request, response) =>
    response.end("hello"),
  );
  await blames(
    { server: box.server },
    {
      culprit: "unknown_ca",
      says: /^The server's certificate is signed by "127\.0\.0\.1", which is not in --ca-cert\.$/,
      next: /^If "127\.0\.0\.1" is the server's CA for agents, give its present certificate as --ca-cert/,
      agent: /^the server's certificate "127\.0\.0\.1" has signed itself, and is not in --ca-cert: give it/,
    },
  );
});
