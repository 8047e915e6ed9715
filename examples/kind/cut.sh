#!/bin/sh
# sh -s SECONDS < cut.sh, where packets between agent and server are forwarded: for so long each packet of the tunnel is
# answered by a reset, and new connections are refused. Port 8091 is the server's port for agents.
set -eu
nft -f - << RULES
table inet culvert_trial {
  chain cut {
    type filter hook forward priority 0
    tcp dport 8091 reject with tcp reset
    tcp sport 8091 reject with tcp reset
  }
}
RULES
trap 'nft delete table inet culvert_trial' EXIT
sleep "$1"
