import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse, parseAllDocuments } from "yaml";
import { ROOT } from "../../../shared/runtime/testing/project.ts";
import { waitFor } from "../../harness/wait.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { restrictedNamespace } from "../world/objects.ts";

/** Kubernetes has the policies of HyperShift's example by itself since this version. */
const POLICIES_SINCE = 36;
/** A kube-apiserver reads its policies every second. */
const POLICY_READ_MS = 30_000;
const PAGE = "../docs/platforms/hypershift.md";
const HOSTED = "hosted";
const IMAGE = "ghcr.io/culvert-gateway/culvert:0.1.0";

/** The files of examples/ for pods. None of them goes through culvert: one lane is enough. */
export const EXAMPLES: readonly Check[] = [
  {
    name: "pods of examples/, and the webhook of HyperShift's page, are taken by the API server",
    deadlineMs: 60_000,
    lanes: ["direct"],
    run: objectsTaken,
  },
  {
    name: "HyperShift's proxies have culvert's image, by the policy of examples/",
    deadlineMs: 60_000,
    lanes: ["direct"],
    run: proxiesExchanged,
  },
];

const read = (path: string) => readFileSync(join(ROOT, "examples", path), "utf8");

async function objectsTaken({ kubectl }: Stage): Promise<Seen> {
  await kubectl.create([restrictedNamespace("examples")]);
  const spec = parse(read("sidecars/values.yaml"));
  const metadata = { name: "sidecars", namespace: "examples" };
  const sidecars = { apiVersion: "v1", kind: "Pod", metadata, spec };
  const [, webhook = ""] = /^```yaml\n([^`]*kind: MutatingWebhookConfiguration\n[^`]*)```/m.exec(read(PAGE)) ?? [];
  const items = [parse(read("static-pod/culvert-agent.yaml")), sidecars, parse(webhook)];
  const stdin = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  const { code, stderr } = await kubectl.run(["apply", "--dry-run=server", "--validate=strict", "-f", "-"], { stdin });
  expect(code === 0 && stderr === "", "no objection", stderr);
  return { printed: `${items.length} objects taken` };
}

async function proxiesExchanged({ world, kubectl }: Stage): Promise<Seen> {
  if (Number(world.assets.version.split(".")[1]) < POLICIES_SINCE) return { printed: "not before Kubernetes 1.36" };
  await kubectl.create([HOSTED, "other"].map((name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } })));
  const policy = parseAllDocuments(read("hypershift/sidecars.yaml").replaceAll("clusters-blue", HOSTED)).map(
    (document) => document.toJS(),
  );
  const stdin = JSON.stringify({ apiVersion: "v1", kind: "List", items: policy });
  await kubectl.must(["apply", "--validate=strict", "-f", "-"], { stdin });
  const images = async (namespace: string): Promise<string> => {
    const { code, stdout, stderr } = await kubectl.dryRun(podOf(namespace), ["-o", "json"]);
    expect(code === 0, "a pod", stderr);
    return JSON.parse(stdout)
      .spec.containers.map(({ image }: { image: string }) => image)
      .join();
  };
  const wanted = ["oauth", IMAGE, IMAGE].join();
  try {
    const isExchanged = async () => (await images(HOSTED)) === wanted;
    await waitFor(isExchanged, { deadlineMs: POLICY_READ_MS, everyMs: 200, what: "images of culvert" });
    const others = await images("other");
    expect(others === "oauth,cpo,cpo", "pods of other namespaces as they were", others);
    return { printed: wanted };
  } finally {
    await kubectl.run(["delete", "-f", "-"], { stdin });
  }
}

/** Containers as HyperShift puts them beside an OAuth server. */
function podOf(namespace: string): object {
  const proxy = (mode: string) => ({
    name: `konnectivity-proxy-${mode}`,
    image: "cpo",
    command: ["/usr/bin/control-plane-operator", `konnectivity-${mode}-proxy`],
    args: ["run"],
  });
  const containers = [{ name: "oauth-server", image: "oauth" }, proxy("https"), proxy("socks5")];
  return { apiVersion: "v1", kind: "Pod", metadata: { name: "oauth", namespace }, spec: { containers } };
}
