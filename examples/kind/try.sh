#!/usr/bin/env bash
# kubectl logs and exec through culvert, and a cut that an exec survives.
# shellcheck source-path=SCRIPTDIR disable=SC2016 # the shell in the pod expands what is quoted
. "$(dirname "${BASH_SOURCE[0]}")/tools.sh"

seconds=4

step "1/4 kubectl logs"
blue logs hello --tail=2

step "2/4 kubectl exec"
blue exec hello -- sh -c 'echo "this is $(hostname)"'

step "3/4 kubectl exec, while the agent's connection is cut for $seconds seconds"
{
  sleep 3
  echo "-- cut"
  docker exec -i culvert-control-control-plane sh -s "$seconds" < cut.sh
  echo "-- the network is back"
} &
cut=$!
blue exec hello -- sh -c 'for i in $(seq 12); do echo "line $i at $(date +%T)"; sleep 1; done'
wait "$cut"

step "4/4 what the server says of its agent"
control -n blue exec deploy/culvert-server -- culvert status
