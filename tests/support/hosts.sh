# SPDX-License-Identifier: Apache-2.0
# Two hosts, hosta and hostb, as network namespaces of this machine, with a link of given delay and
# rate between them. Source this file.
#
# The test continues in its own mount, process and network namespaces, so that nothing is left
# behind however it ends. The link is a veth pair that the kernel delays and throttles (sch_netem).
# Kernels without netem get a pair of tunnels with a program between them (programs/hosts_link.c).
# hosts_link names the one in use.

hosts_link=
PATH=$PATH:/usr/sbin:/sbin

# Prints why there can be no hosts here, or nothing if there can.
hosts_missing() {
  ((EUID == 0)) || { echo "only root can make network namespaces"; return; }
  type -P ip >/dev/null || { echo "ip (iproute2) is not installed"; return; }
  unshare -mpn --fork --mount-proc true 2>/dev/null || { echo "no namespaces can be made"; return; }
  [[ -c /dev/net/tun ]] || hosts_has_netem || echo "neither sch_netem nor /dev/net/tun is there"
}

hosts_has_netem() {
  unshare -n sh -c 'ip link set lo up && tc qdisc add dev lo root netem delay 1ms' 2>/dev/null
}

# Runs this script again as the first process of its namespaces, or skips the test.
hosts_enter() {
  [[ ${SLUICE_HOSTS_INSIDE-} ]] && return
  local missing
  missing=$(hosts_missing)
  [[ $missing ]] && { echo "skipped: $missing"; exit 77; }
  SLUICE_HOSTS_INSIDE=1 exec unshare -mpn --fork --kill-child --mount-proc bash "$0" "$@"
}

# Runs a command on a host.
on() { # HOST COMMAND...
  ip netns exec "$1" unshare -u sh -c 'hostname "$0" && exec "$@"' "$@"
}

hosts_tunnels() { # DELAY_US RATE_MBIT
  local host i
  "$SLUICE_BUILD/tests/hosts_link" hosta hostb "$1" "$2" &
  for host in hosta hostb; do
    for i in $(seq 100); do
      ip -n "$host" link show link0 >/dev/null 2>&1 && break
      sleep 0.05
    done
    ip -n "$host" link set link0 mtu 9000 || return
  done
}

hosts_veth() { # DELAY_US RATE_MBIT
  local host
  ip link add link0 netns hosta type veth peer name link0 netns hostb || return
  for host in hosta hostb; do
    ip -n "$host" link set link0 mtu 9000 &&
      on "$host" tc qdisc add dev link0 root netem delay "$1us" rate "$2mbit" limit 4000 || return
  done
}

# Makes the hosts and the link; the delay is one way.
hosts_start() { # DELAY_US RATE_MBIT
  local address=1 host
  mount -t tmpfs none /run || return
  { printf '10.231.0.1 hosta\n10.231.0.2 hostb\n'; cat /etc/hosts; } >/run/hosts
  mount --bind /run/hosts /etc/hosts || return
  ip netns add hosta && ip netns add hostb || return
  if hosts_has_netem; then
    hosts_link="veth with netem"
    hosts_veth "$@" || return
  else
    hosts_link="tunnels through a program"
    hosts_tunnels "$@" || return
  fi
  for host in hosta hostb; do
    ip -n "$host" addr add 10.231.0.$((address++))/24 dev link0 || return
    ip -n "$host" link set lo up && ip -n "$host" link set link0 up || return
  done
}

# Cuts the link silently: packets are lost without an error.
hosts_cut() { ip -n hostb link set link0 down; }
hosts_mend() { ip -n hostb link set link0 up; }
