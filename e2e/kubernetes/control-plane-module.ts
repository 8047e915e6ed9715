/**
 * The go.mod that builds kube-apiserver, etcd and kubectl of one Kubernetes version as ordinary modules.
 *
 * Kubernetes' own go.mod takes its staging modules (k8s.io/api, …) from folders of its repository, which its published
 * module lacks. They are published too, as v0 of the same minor and patch, and a `replace` leads there. The Go version,
 * the godebug default and etcd are those that Kubernetes names for itself.
 */
export function controlPlaneModule(version: string, kubernetesGoMod: string): string {
  const stagingVersion = version.replace(/^1\./, "v0.");
  const staging = new Set(kubernetesGoMod.match(/(?<=\.\/staging\/src\/)k8s\.io\/[\w-]+/g));
  const etcd = /^\s*go\.etcd\.io\/etcd\/server\/v3 (\S+)/m.exec(kubernetesGoMod)?.[1];
  const goVersion = /^go \S+$/m.exec(kubernetesGoMod)?.[0];
  if (staging.size === 0 || etcd === undefined || goVersion === undefined) {
    throw new Error(`the go.mod of Kubernetes ${version} has another form than the ones known here`);
  }
  return [
    "module culvert.invalid/controlplane",
    goVersion,
    ...(kubernetesGoMod.match(/^godebug \S+$/gm) ?? []),
    `require k8s.io/kubernetes v${version}`,
    `require go.etcd.io/etcd/server/v3 ${etcd}`,
    ...[...staging].sort().map((module) => `replace ${module} => ${module} ${stagingVersion}`),
    "",
  ].join("\n");
}

/** Linked in as upstream's release build does; without them the binaries take themselves for v0.0.0-master. */
export function versionFlags(version: string): string {
  const variables = { gitVersion: `v${version}`, gitMajor: "1", gitMinor: version.split(".")[1] };
  const flags = Object.entries(variables).map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`);
  return ["-s", "-w", ...flags].join(" ");
}
