import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { PORTS } from "./addresses.ts";
import type { Kubectl } from "./kubectl.ts";
import type { World } from "./world.ts";

/** A service account. */
interface Account {
  readonly name: string;
  readonly namespace: string;
}

const PAGE = join(import.meta.dirname, "../../../docs/kubernetes.md");
const RBAC = "rbac.authorization.k8s.io";

/** The rules that the page tells readers to grant: those with this comment behind `rules:`, or without one. */
export function rulesOfThePage(comment = ""): object[] {
  const blocks = [...readFileSync(PAGE, "utf8").matchAll(/```yaml\n(rules:.*\n[\s\S]*?)```/g)].map(
    ([, yaml = ""]) => yaml,
  );
  const first = comment === "" ? "rules:" : `rules: # ${comment}`;
  const yaml = blocks.find((block) => block.split("\n", 1)[0] === first);
  if (yaml === undefined) throw new Error(`docs/kubernetes.md has no "${first}"`);
  return parse(yaml).rules;
}

/** A Role with these rules and its binding to the account. */
export function roleOf({ name, namespace }: Account, rules: readonly object[]): object[] {
  const metadata = { name, namespace };
  return [
    { apiVersion: `${RBAC}/v1`, kind: "Role", metadata, rules },
    {
      ...{ apiVersion: `${RBAC}/v1`, kind: "RoleBinding", metadata },
      roleRef: { apiGroup: RBAC, kind: "Role", name },
      subjects: [{ kind: "ServiceAccount", name, namespace }],
    },
  ];
}

/** Lets the account ask for TokenReviews. */
export function delegatorOf({ name, namespace }: Account): object {
  return {
    ...{ apiVersion: `${RBAC}/v1`, kind: "ClusterRoleBinding", metadata: { name: `${namespace}:${name}` } },
    roleRef: { apiGroup: RBAC, kind: "ClusterRole", name: "system:auth-delegator" },
    subjects: [{ kind: "ServiceAccount", name, namespace }],
  };
}

/** Its audience is the API server's unless one is named. */
export async function tokenOf(kubectl: Kubectl, { name, namespace }: Account, audience?: string): Promise<string> {
  const command = ["create", "token", name, `--namespace=${namespace}`];
  if (audience !== undefined) command.push(`--audience=${audience}`);
  return (await kubectl.must(command)).stdout.trim();
}

/** Writes a kubeconfig with a token of the account, and returns its path. */
export async function kubeconfigOf(world: World, kubectl: Kubectl, account: Account): Promise<string> {
  const path = world.dir.file(`kubeconfig-${account.namespace}-${account.name}`);
  const cluster = {
    server: `https://127.0.0.1:${PORTS.kubeApiserver}`,
    "certificate-authority": world.pki.kubeApiserver.ca,
  };
  const config = {
    "current-context": "here",
    contexts: [{ name: "here", context: { cluster: "world", user: account.name } }],
    clusters: [{ name: "world", cluster }],
    users: [{ name: account.name, user: { token: await tokenOf(kubectl, account) } }],
  };
  writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
  return path;
}
