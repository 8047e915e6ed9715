import assert from "node:assert/strict";
import test from "node:test";
import { controlPlaneModule, versionFlags } from "./control-plane-module.ts";

const KUBERNETES = `module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	github.com/spf13/cobra v1.9.1
	go.etcd.io/etcd/client/v3 v3.6.1
	go.etcd.io/etcd/server/v3 v3.6.4 // indirect
	k8s.io/api v0.0.0
)

replace (
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
	k8s.io/api => ./staging/src/k8s.io/api
)
`;

test("the module takes the staging modules of the same minor and patch, and Go, godebug and etcd from Kubernetes", () => {
  assert.equal(
    controlPlaneModule("1.34.4", KUBERNETES),
    `module culvert.invalid/controlplane
go 1.24.0
godebug default=go1.24
require k8s.io/kubernetes v1.34.4
require go.etcd.io/etcd/server/v3 v3.6.4
replace k8s.io/api => k8s.io/api v0.34.4
replace k8s.io/kubectl => k8s.io/kubectl v0.34.4
`,
  );
});

test("a go.mod of another form is refused and names the version", () => {
  assert.throws(() => controlPlaneModule("1.99.0", "module k8s.io/kubernetes\n\ngo 1.30\n"), /Kubernetes 1\.99\.0/);
});

test("the binaries are linked with the version they are", () => {
  assert.match(versionFlags("1.34.4"), /version\.gitVersion=v1\.34\.4 .*version\.gitMinor=34$/);
});
