#!/usr/bin/env bash
# Two kind clusters with culvert between them, and a pod to look at. It may be run again after a failure.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/tools.sh"

cluster() { # NAME [options of kind]: creates the cluster where it does not exist, and loads the image
  local name=$1
  shift
  kind get clusters | grep -x "$name" > /dev/null || kind create cluster --name "$name" --wait 3m "$@"
  kind load docker-image culvert:trial --name "$name"
}

namespace() { # KUBECTL NAME
  "$1" create namespace "$2" --dry-run=client -o yaml | "$1" apply -f -
}

step "1/6 culvert's image, from this clone"
docker build --tag culvert:trial ../..

step "2/6 the cluster where control planes run"
cluster culvert-control
address=$(control get node culvert-control-control-plane \
  -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}')

step "3/6 the culvert server in it, at $address"
namespace control blue
helm --kube-context kind-culvert-control upgrade --install culvert-server ../../helm/culvert-server --namespace blue \
  -f server.yaml --set "agents.hosts={$address}" --set "callers.hosts={$address}" \
  --set "egress.url=https://$address:30090"
control apply -f callers.yaml
control -n blue rollout status deployment/culvert-server --timeout=3m

step "4/6 kube-apiserver's egress file and certificate, in run/kube-apiserver"
(
  umask 077
  mkdir -p run/kube-apiserver
  for key in ca.crt tls.crt tls.key; do
    control -n blue get secret culvert-server-caller -o go-template="{{index .data \"$key\" | base64decode}}" \
      > "run/kube-apiserver/$key"
  done
  control -n blue get configmap culvert-server-egress \
    -o go-template='{{index .data "egress-selector-configuration.yaml"}}' \
    > run/kube-apiserver/egress-selector-configuration.yaml
)

step "5/6 the workload cluster, whose kube-apiserver has them"
cluster culvert-blue --config blue.yaml

step "6/6 the culvert agent in it, and a pod to look at"
namespace blue culvert
control -n blue get secret culvert-server-agent -o yaml |
  sed -E '/^  (namespace|uid|resourceVersion|creationTimestamp):/d' |
  blue -n culvert apply --server-side -f -
helm --kube-context kind-culvert-blue upgrade --install culvert-agent ../../helm/culvert-agent --namespace culvert \
  -f agent.yaml --set "servers={wss://$address:30091}"
blue -n culvert rollout status deployment/culvert-agent --timeout=3m
blue apply -f hello.yaml
blue wait --for=condition=Ready pod/hello --timeout=2m

printf '\nReady. Now run %s/try.sh\n' "$(dirname "$0")"
