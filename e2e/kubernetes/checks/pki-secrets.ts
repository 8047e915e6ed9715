import { MAIN, RUNTIME } from "../../harness/processes.ts";
import { type Check, expect, oneLine, type Seen, type Stage } from "../check.ts";
import { kubeconfigOf, roleOf, rulesOfThePage } from "../world/accounts.ts";
import type { Finished } from "../world/run.ts";

const NAMESPACE = "pki";
const ACCOUNT = { name: "culvert-pki", namespace: NAMESPACE };
const NAME = "culvert-server";
const SECRETS = ["agent", "ca", "caller", "server"].map((role) => `secret/${NAME}-${role}`);

/** The command of the server chart's hook Job, with the rights of its account alone. No lane has a part in it. */
export const PKI_SECRETS: readonly Check[] = [
  { name: "culvert pki kubernetes", deadlineMs: 60_000, lanes: ["uds"], run: certificatesInSecrets },
];

async function certificatesInSecrets({ world, kubectl, signal }: Stage): Promise<Seen> {
  await kubectl.must(["create", "namespace", NAMESPACE]);
  await kubectl.must(["create", "serviceaccount", ACCOUNT.name, `--namespace=${NAMESPACE}`]);
  const config = await kubeconfigOf(world, kubectl, ACCOUNT);
  const run = (...names: string[]): Promise<Finished> => {
    const options = [`--namespace=${NAMESPACE}`, `--name=${NAME}`, `--server-names=${names}`, `--kubeconfig=${config}`];
    return world.network.controlPlane.run([RUNTIME, MAIN, "pki", "kubernetes", ...options], { signal });
  };

  const forbidden = await run("a.example");
  const namesTheRule = forbidden.stderr.includes('grant the verb "get" on "secrets" in namespace "pki" by a Role');
  expect(forbidden.code === 1 && namesTheRule, "the missing rule", forbidden.stderr);

  await kubectl.create(roleOf(ACCOUNT, rulesOfThePage()));
  for (const { code, stdout, stderr } of await Promise.all([run("a.example"), run("a.example")])) {
    expect(code === 0, "two runs at once that both succeed", stdout + stderr);
  }
  const found = await kubectl.must(["get", "secrets", "--output=name", `--namespace=${NAMESPACE}`]);
  expect(found.stdout.trim().split("\n").join() === SECRETS.join(), "four Secrets", found.stdout);

  const { code, stdout, stderr, seconds } = await run("b.example", "10.1.2.3");
  const states = [...stdout.matchAll(/: (created|renewed|kept),/g)].map(([, state]) => state);
  expect(
    code === 0 && states.join() === "kept,renewed,kept,kept",
    "a serving certificate with new names",
    stdout + stderr,
  );
  return { printed: oneLine(stdout), seconds };
}
