#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the two hosts that other tests use: traffic between them has the link's delay and rate, and
# nothing gets through while the link is cut.
# labels: unthreaded outside
# needs: zeromq
set -euo pipefail
source "$SLUICE_SOURCE/tests/support/hosts.sh"
hosts_enter "$@"
fail() { echo "test_comm_hosts: $*" >&2; exit 1; }

delay_us=1000 rate_mbit=1000
hosts_start $delay_us $rate_mbit || fail "the hosts do not come up"
echo "link: $hosts_link, $delay_us us, $rate_mbit Mbit/s"
probe=$SLUICE_BUILD/tests/hosts_probe
ask() { # port
  on hosta "$probe" serve "$1" &
  sleep 0.2
  on hostb "$probe" ask hosta "$1"
}

figures=$(ask 5001) || fail "hosta does not answer"
echo "$figures"
read -r us < <(awk '$1 == "round_trip" { print $2 }' <<<"$figures")
read -r mbit < <(awk '$1 == "rate" { print $2 }' <<<"$figures")
# Twice the delay, plus what two schedulers add. A busy machine is slower.
((us >= 2 * delay_us && us < 2 * delay_us + 2000)) || fail "a round trip takes $us us"
((mbit <= rate_mbit && mbit > rate_mbit / 10)) || fail "$mbit Mbit/s"

hosts_cut
if on hostb timeout 2 "$probe" ask hosta 5002 2>/dev/null; then fail "the link is not cut"; fi
hosts_mend
ask 5003 >/dev/null || fail "the link is not mended"
