#!/usr/bin/env bash
# Removes both clusters and the files. The image culvert:trial stays.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "${BASH_SOURCE[0]}")/tools.sh"

kind delete cluster --name culvert-blue
kind delete cluster --name culvert-control
rm -rf run
