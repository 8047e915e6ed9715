# shellcheck shell=bash
# For up.sh, try.sh and down.sh: names, and a check that all tools are installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

step() { printf '\n== %s\n' "$1"; }
control() { kubectl --context kind-culvert-control "$@"; }
blue() { kubectl --context kind-culvert-blue "$@"; }

for tool in docker kind kubectl helm; do
  command -v "$tool" > /dev/null || {
    echo "$tool is not installed; README.md in this folder lists the tools of the trial" >&2
    exit 1
  }
done
