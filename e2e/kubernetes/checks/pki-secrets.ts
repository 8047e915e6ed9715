import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { MAIN } from "../../harness/processes.ts";
import { type Check, expect, oneLine, type Seen, type Stage } from "../check.ts";
import { PORTS } from "../world/addresses.ts";
import type { Kubectl } from "../world/kubectl.ts";
import type { Finished } from "../world/run.ts";
import type { World } from "../world/world.ts";

const NAMESPACE = "pki";
const ACCOUNT = "culvert-pki";
const NAME = "culvert-server";
const SECRETS = ["agent", "ca", "caller", "server"].map((role) => `secret/${NAME}-${role}`);
const PAGE = join(import.meta.dirname, "../../../docs/kubernetes.md");

/** The command of the server chart's hook Job, with the rights of its account alone. No lane has a part in it. */
export const PKI_SECRETS: readonly Check[] = [
  { name: "culvert pki kubernetes", deadlineMs: 60_000, lanes: ["uds"], run: certificatesInSecrets },
];

async function certificatesInSecrets({ world, kubectl, signal }: Stage): Promise<Seen> {
  await kubectl.must(["create", "namespace", NAMESPACE]);
  await kubectl.must(["create", "serviceaccount", ACCOUNT, `--namespace=${NAMESPACE}`]);
  const config = await kubeconfigOf(world, kubectl);
  const run = (...names: string[]): Promise<Finished> => {
    const options = [`--namespace=${NAMESPACE}`, `--name=${NAME}`, `--server-names=${names}`, `--kubeconfig=${config}`];
    return world.network.controlPlane.run([process.execPath, MAIN, "pki", "kubernetes", ...options], { signal });
  };

  const forbidden = await run("a.example");
  const namesTheRule = forbidden.stderr.includes('grant the verb "get" on "secrets" in namespace "pki" by a Role');
  expect(forbidden.code === 1 && namesTheRule, "the missing rule", forbidden.stderr);

  await kubectl.create([roleOfThePage(), BINDING]);
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

async function kubeconfigOf(world: World, kubectl: Kubectl): Promise<string> {
  const { stdout } = await kubectl.must(["create", "token", ACCOUNT, `--namespace=${NAMESPACE}`]);
  const server = `https://127.0.0.1:${PORTS.kubeApiserver}`;
  const path = world.dir.file("kubeconfig-pki");
  const config = {
    "current-context": "pki",
    contexts: [{ name: "pki", context: { cluster: "world", user: ACCOUNT } }],
    clusters: [{ name: "world", cluster: { server, "certificate-authority": world.pki.kubeApiserver.ca } }],
    users: [{ name: ACCOUNT, user: { token: stdout.trim() } }],
  };
  writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
  return path;
}

/** What the page tells readers to grant has to be enough. */
function roleOfThePage(): object {
  const [, yaml = ""] = /```yaml\n(rules:\n[\s\S]*?)```/.exec(readFileSync(PAGE, "utf8")) ?? [];
  const metadata = { name: ACCOUNT, namespace: NAMESPACE };
  return { apiVersion: "rbac.authorization.k8s.io/v1", kind: "Role", metadata, ...parse(yaml) };
}

const BINDING = {
  apiVersion: "rbac.authorization.k8s.io/v1",
  kind: "RoleBinding",
  metadata: { name: ACCOUNT, namespace: NAMESPACE },
  roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: ACCOUNT },
  subjects: [{ kind: "ServiceAccount", name: ACCOUNT, namespace: NAMESPACE }],
};
